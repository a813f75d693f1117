/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Small loads for machines that are recorded.
 *
 *   loads loopback                   turns on the loopback interface
 *   loads exchange tcp|udp PAIRS N   in PAIRS pairs of processes at once, one sends a byte over
 *                                    the loopback interface and waits for a byte, N times
 *   loads forks LOOPS N              in LOOPS processes at once, N times: fork, start /usr/bin/true
 *                                    in the child, wait for its end
 *
 * Exit status: 0, or 1 with a line of what failed.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int number_of(const char *text)
{
        char *end;
        long number = strtol(text, &end, 10);

        if (*end || number < 1 || number > 1000000)
                errx(1, "%s: expected a number from 1 to 1000000", text);
        return (int)number;
}

static void turn_on_loopback(void)
{
        struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
        int any = socket(AF_INET, SOCK_DGRAM, 0);

        if (any < 0 || ioctl(any, SIOCSIFFLAGS, &request))
                err(1, "lo");
        close(any);
}

static int bound_socket(int type, struct sockaddr_in *address)
{
        socklen_t bytes = sizeof(*address);
        int made = socket(AF_INET, type, 0);

        *address = (struct sockaddr_in){
                .sin_family = AF_INET,
                .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
        };
        if (made < 0 || bind(made, (struct sockaddr *)address, bytes) ||
            getsockname(made, (struct sockaddr *)address, &bytes))
                err(1, "a socket");
        return made;
}

static void connect_to(int socket, const struct sockaddr_in *address)
{
        if (connect(socket, (const struct sockaddr *)address, sizeof(*address)))
                err(1, "connect");
}

/* Two sockets that are connected to each other. */
static void make_pair(bool tcp, int pair[2])
{
        struct sockaddr_in address[2];
        int on = 1;

        for (int i = 0; i < 2; i++)
                pair[i] = bound_socket(tcp ? SOCK_STREAM : SOCK_DGRAM, &address[i]);
        if (tcp) {
                int listening = pair[1];

                if (listen(listening, 1))
                        err(1, "listen");
                connect_to(pair[0], &address[1]);
                pair[1] = accept(listening, NULL, NULL);
                if (pair[1] < 0)
                        err(1, "accept");
                close(listening);
                for (int i = 0; i < 2; i++)
                        setsockopt(pair[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        } else {
                connect_to(pair[0], &address[1]);
                connect_to(pair[1], &address[0]);
        }
}

static void exchange(int socket, bool asks, int times)
{
        char byte = 0;

        for (int i = 0; i < times; i++) {
                if (asks && send(socket, &byte, 1, 0) != 1)
                        err(1, "send");
                if (recv(socket, &byte, 1, 0) != 1)
                        err(1, "recv");
                if (!asks && send(socket, &byte, 1, 0) != 1)
                        err(1, "send");
        }
}

static pid_t start(void)
{
        pid_t child = fork();

        if (child < 0)
                err(1, "fork");
        return child;
}

static void exchange_in_pairs(bool tcp, int pairs, int times)
{
        for (int i = 0; i < pairs; i++) {
                int pair[2];

                make_pair(tcp, pair);
                for (int end = 0; end < 2; end++) {
                        if (start())
                                continue;
                        close(pair[!end]);
                        exchange(pair[end], end == 0, times);
                        _exit(0);
                }
                close(pair[0]);
                close(pair[1]);
        }
}

static void fork_and_wait(int times)
{
        for (int i = 0; i < times; i++) {
                pid_t child = start();
                int status;

                if (!child) {
                        execl("/usr/bin/true", "true", NULL);
                        _exit(1);
                }
                if (waitpid(child, &status, 0) != child || status)
                        errx(1, "/usr/bin/true failed");
        }
}

static void fork_in_loops(int loops, int times)
{
        for (int i = 0; i < loops; i++) {
                if (start())
                        continue;
                fork_and_wait(times);
                _exit(0);
        }
}

/* Whether all children have ended well. */
static bool wait_for_all(void)
{
        bool well = true;
        int status;

        while (wait(&status) > 0)
                well = well && status == 0;
        return well;
}

int main(int argc, char **argv)
{
        if (argc == 2 && strcmp(argv[1], "loopback") == 0)
                turn_on_loopback();
        else if (argc == 5 && strcmp(argv[1], "exchange") == 0)
                exchange_in_pairs(strcmp(argv[2], "tcp") == 0, number_of(argv[3]),
                                  number_of(argv[4]));
        else if (argc == 4 && strcmp(argv[1], "forks") == 0)
                fork_in_loops(number_of(argv[2]), number_of(argv[3]));
        else
                errx(1, "expected loopback, exchange tcp|udp PAIRS N, or forks LOOPS N");
        return wait_for_all() ? 0 : 1;
}
