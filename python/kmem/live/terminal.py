# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The terminal of `kmem top`: Textual's driver, with what it leaves out.

Textual's own ends with a traceback at bytes that are no UTF-8, spins when the terminal is gone,
draws on standard error, and loses the terminal's modes after a SIGSTOP.
"""

import codecs
import errno
import os
import select
import signal
import sys
from typing import Any

# The parser's own module is private.
from textual.drivers.linux_driver import LinuxDriver, XTermParser  # type: ignore[attr-defined]

READ_BYTES = 4096
WAIT_SECONDS = 0.1  # until the thread looks whether the application has ended


class Drawing:
    """Standard output, as the screen's file. What a lost terminal cannot show is dropped.

    An error would end Textual's writing thread, and the application would wait for it for ever.
    """

    def __init__(self) -> None:
        # A file of its own: Python would write the rest of standard output's buffer at exit, fail,
        # and change the exit status.
        number = sys.__stdout__.fileno() if sys.__stdout__ is not None else 1
        encoding = getattr(sys.__stdout__, "encoding", "utf-8")
        self.file = open(  # noqa: SIM115 - a descriptor, open as long as the command runs
            number, "w", encoding=encoding, errors="backslashreplace", closefd=False
        )
        self.lost = False

    def fileno(self) -> int:
        return self.file.fileno()

    def write(self, text: str) -> None:
        self.attempt(self.file.write, text)

    def flush(self) -> None:
        self.attempt(self.file.flush)

    def attempt(self, do: Any, *arguments: str) -> None:
        if self.lost:
            return
        try:
            do(*arguments)
        except OSError:
            self.lost = True


class Terminal(LinuxDriver):
    """The driver of the application."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._file: Any = Drawing()

    def run_input_thread(self) -> None:
        """Read keys, until the application or the terminal ends."""
        parser = XTermParser(self._debug)
        # A terminal in another encoding, or a paste, has bytes that are no UTF-8.
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        while not self.exit_event.is_set():
            if select.select([self.fileno], [], [], WAIT_SECONDS)[0]:
                try:
                    data = os.read(self.fileno, READ_BYTES)
                except OSError as error:
                    if error.errno != errno.EIO:
                        raise
                    data = b""
                if not data:
                    # Nobody can press a key any more. SIGHUP says so too, but may be ignored.
                    self._app.call_later(self._app.exit, None, 1)
                    return
                for event in parser.feed(decode(data)):
                    self.process_message(event)
            for event in parser.tick():
                self.process_message(event)

    def _sigcont_application(self, *_: object) -> None:
        """Take the terminal again.

        Before a SIGTSTP its modes were given back, but a SIGSTOP cannot be caught. Textual would
        then take its own modes for those to leave behind, and start its threads a second time.
        """
        if self._auto_restart and not self._must_signal_resume:
            try:
                foreground = os.tcgetpgrp(self.fileno)
            except OSError:
                return  # the terminal is gone, or has no jobs and left the modes as they were
            if foreground != os.getpgrp():
                # In the background the terminal is another program's.
                os.kill(os.getpid(), signal.SIGSTOP)
                return
            self.suspend_application_mode()
        super()._sigcont_application()
