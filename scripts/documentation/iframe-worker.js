// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Browsers start no workers for pages that are read from files. The site's search is a worker, so a hidden frame of the
// page takes the worker's place there: the worker's script runs in it, and events carry the messages.
if (location.protocol === "file:") {
        window.IFrameWorker = class extends EventTarget {
                constructor(address) {
                        super();
                        this.waiting = [];
                        this.frame = document.createElement("iframe");
                        this.frame.hidden = true;
                        document.body.appendChild(this.frame);
                        this.start(new URL(address, location.href));
                }

                start(address) {
                        const inside = this.frame.contentWindow;
                        const script = inside.document.createElement("script");

                        inside.postMessage = (data) => this.receive(data);
                        inside.importScripts = (...names) =>
                                names.reduce((before, name) => before.then(() => this.load(name, address)),
                                        Promise.resolve());
                        script.src = address;
                        script.onload = () => {
                                const messages = this.waiting;

                                this.waiting = null;
                                messages.forEach((data) => this.postMessage(data));
                        };
                        script.onerror = () => this.dispatchEvent(new Event("error"));
                        inside.document.body.appendChild(script);
                }

                load(name, address) {
                        const inside = this.frame.contentWindow;
                        const script = inside.document.createElement("script");

                        script.src = new URL(name, address);
                        return new Promise((done, failed) => {
                                script.onload = done;
                                script.onerror = failed;
                                inside.document.body.appendChild(script);
                        });
                }

                // The page to the worker; a script that is not there yet gets its messages later.
                postMessage(data) {
                        const inside = this.frame.contentWindow;

                        if (this.waiting)
                                this.waiting.push(data);
                        else
                                inside.dispatchEvent(new inside.MessageEvent("message", { data }));
                }

                // The worker to the page.
                receive(data) {
                        const event = new MessageEvent("message", { data });

                        this.dispatchEvent(event);
                        this.onmessage?.(event);
                }

                terminate() {
                        this.frame.remove();
                }
        };
        window.Worker = window.IFrameWorker;
}
