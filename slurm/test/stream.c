// stream PORT: answers bytes, then takes a stream and prints its rate in Mbit/s.
// stream PORT ADDRESS MIB: prints the smallest round-trip time in us, then sends so much.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 200, BLOCK_BYTES = 1 << 17 };
static char block[BLOCK_BYTES];

static double now_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void check(int right, const char *what) {
    if (right) return;
    perror(what);
    exit(1);
}

static void answer(int listener) {
    int one = 1, stream = accept(listener, NULL, NULL);
    check(stream >= 0, "accept");
    setsockopt(stream, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (int i = 0; i < ROUNDS; i++) {
        check(read(stream, block, 1) == 1, "read");
        check(write(stream, block, 1) == 1, "write");
    }
    double start_s = now_s(), bytes = 0;
    for (ssize_t got; (got = read(stream, block, BLOCK_BYTES)) > 0;) bytes += got;
    printf("%.0f\n", bytes * 8 / (now_s() - start_s) / 1e6);
}

static void ask(int stream, long bytes) {
    double best_s = 1e9;
    for (int i = 0; i < ROUNDS; i++) {
        double start_s = now_s();
        check(write(stream, block, 1) == 1, "write");
        check(read(stream, block, 1) == 1, "read");
        if (now_s() - start_s < best_s) best_s = now_s() - start_s;
    }
    printf("%.0f\n", best_s * 1e6);
    for (ssize_t put; bytes > 0; bytes -= put) {
        put = write(stream, block, BLOCK_BYTES);
        check(put > 0, "write");
    }
}

int main(int count, char **arguments) {
    int one = 1, end = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET};
    alarm(60);
    if (count < 2) return 2;
    address.sin_port = htons(atoi(arguments[1]));
    if (count == 2) {
        setsockopt(end, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        check(bind(end, (struct sockaddr *)&address, sizeof address) == 0, "bind");
        check(listen(end, 1) == 0, "listen");
        answer(end);
    } else {
        inet_pton(AF_INET, arguments[2], &address.sin_addr);
        check(connect(end, (struct sockaddr *)&address, sizeof address) == 0, "connect");
        setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        ask(end, atol(arguments[3]) << 20);
    }
}
