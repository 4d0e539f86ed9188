// Producers that send one record at a time with acks=all and wait for its acknowledgement, in one thread and without a
// client library. Prints the same lines as ../go/main.go: "begin" and "end" when records begin and end to count, then
// the microseconds that each counted record took. See ../small.py.
//
//     main HOST PORT WARM_UP_MS DURATION_MS FRAMES
//
// FRAMES has for each connection two numbers of 32 bits in network order, the length of a frame and the place of the
// record batch in it, and the frame: a Produce request of version 13 with one batch for one partition, from a producer
// of its own (../produce_frames.py). Before each sending, what differs from request to request is written into the
// frame: the correlation id, the time, the sequence number and the checksum.
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    LENGTH_BYTES = 4,
    CORRELATION_ID_AT = 8,  // in a request: behind the length, the API's key and version
    // in a response: the length, the correlation id, no tags, one topic, its id, one partition, its index, the error
    ANSWERED_ID_AT = 4,
    ERROR_CODE_AT = 4 + 4 + 1 + 1 + 16 + 1 + 4,
    // in a record batch
    CHECKSUM_AT = 17,
    CHECKED_FROM = 21,
    BASE_TIMESTAMP_AT = 27,
    MAX_TIMESTAMP_AT = 35,
    BASE_SEQUENCE_AT = 53,
    ANSWER_MAX_BYTES = 1024,
    EVENTS = 256,
    SILENCE_MS = 60000,  // the benchmark has failed if no answer comes for so long
};

typedef struct {
    int socket;
    uint8_t *frame;
    size_t frame_bytes;
    uint8_t *batch;
    uint32_t sequence;
    uint32_t correlation_id;
    int64_t begun_ns;
    uint8_t answer[ANSWER_MAX_BYTES];
    size_t received_bytes;
} Connection;

typedef struct {
    uint32_t *microseconds;
    size_t count;
    size_t room;
} Times;

static uint32_t checksums[256];

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, errno ? strerror(errno) : "unexpected");
    exit(1);
}

static int64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void write_32(uint8_t *to, uint32_t value) {
    value = htonl(value);
    memcpy(to, &value, sizeof value);
}

static void write_64(uint8_t *to, uint64_t value) {
    write_32(to, (uint32_t)(value >> 32));
    write_32(to + 4, (uint32_t)value);
}

static uint32_t read_32(const uint8_t *from) {
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return ntohl(value);
}

// CRC-32C, with a table of one byte: a frame has fewer than 200 bytes.
static void fill_checksums(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t remainder = byte;
        for (int bit = 0; bit < 8; bit++) remainder = remainder >> 1 ^ (remainder & 1 ? 0x82f63b78u : 0);
        checksums[byte] = remainder;
    }
}

static uint32_t checksum(const uint8_t *from, const uint8_t *end) {
    uint32_t remainder = ~0u;
    while (from < end) remainder = remainder >> 8 ^ checksums[(remainder ^ *from++) & 255];
    return ~remainder;
}

static Connection *read_frames(const char *path, size_t *count) {
    FILE *file = fopen(path, "rb");
    if (!file) fail(path);
    Connection *connections = NULL;
    uint8_t head[8];
    for (*count = 0; fread(head, sizeof head, 1, file) == 1; ++*count) {
        connections = realloc(connections, (*count + 1) * sizeof *connections);
        if (!connections) fail("memory");
        Connection *one = memset(connections + *count, 0, sizeof *connections);
        one->frame_bytes = read_32(head);
        one->frame = malloc(one->frame_bytes);
        if (!one->frame || fread(one->frame, one->frame_bytes, 1, file) != 1) fail("frames");
        one->batch = one->frame + read_32(head + 4);
    }
    fclose(file);
    return connections;
}

static int connect_to(const char *host, const char *port) {
    struct addrinfo wanted = {.ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(host, port, &wanted, &found)) fail(host);
    int on = 1, made = socket(found->ai_family, found->ai_socktype, found->ai_protocol);
    if (made < 0 || connect(made, found->ai_addr, found->ai_addrlen)) fail("connect");
    if (setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on)) fail("TCP_NODELAY");
    freeaddrinfo(found);
    return made;
}

static void send_record(Connection *one) {
    uint64_t now_ms = (uint64_t)(clock_ns(CLOCK_REALTIME) / 1000000);
    write_32(one->frame + CORRELATION_ID_AT, ++one->correlation_id);
    write_64(one->batch + BASE_TIMESTAMP_AT, now_ms);
    write_64(one->batch + MAX_TIMESTAMP_AT, now_ms);
    write_32(one->batch + BASE_SEQUENCE_AT, one->sequence++);
    const uint8_t *batch_end = one->batch + 12 + read_32(one->batch + 8);
    write_32(one->batch + CHECKSUM_AT, checksum(one->batch + CHECKED_FROM, batch_end));
    one->received_bytes = 0;
    one->begun_ns = clock_ns(CLOCK_MONOTONIC);
    // A frame always has room: the one before was answered.
    if (send(one->socket, one->frame, one->frame_bytes, MSG_NOSIGNAL) != (ssize_t)one->frame_bytes) fail("send");
}

// Return 1 when the whole answer is there, and it says that the record is stored.
static int receive_answer(Connection *one) {
    errno = 0;
    ssize_t more = recv(one->socket, one->answer + one->received_bytes, ANSWER_MAX_BYTES - one->received_bytes, 0);
    if (more <= 0) fail("receive");
    one->received_bytes += (size_t)more;
    if (one->received_bytes < LENGTH_BYTES) return 0;
    size_t whole_bytes = LENGTH_BYTES + (size_t)read_32(one->answer);
    if (whole_bytes > ANSWER_MAX_BYTES || whole_bytes < ERROR_CODE_AT + 2) fail("answer of another length");
    if (one->received_bytes < whole_bytes) return 0;
    if (read_32(one->answer + ANSWERED_ID_AT) != one->correlation_id) fail("answer to another request");
    int error_code = one->answer[ERROR_CODE_AT] << 8 | one->answer[ERROR_CODE_AT + 1];
    if (error_code) {
        fprintf(stderr, "a record was refused with error code %d\n", (int16_t)error_code);
        exit(1);
    }
    return 1;
}

static void note_time(Times *times, int64_t taken_ns) {
    if (times->count == times->room) {
        times->room = times->room ? 2 * times->room : 1 << 16;
        times->microseconds = realloc(times->microseconds, times->room * sizeof *times->microseconds);
        if (!times->microseconds) fail("memory");
    }
    times->microseconds[times->count++] = (uint32_t)(taken_ns / 1000);
}

static void print_mark(const char *mark) {
    puts(mark);
    fflush(stdout);
}

// Let all connections send until `end_ns`, and note each record whose sending began between `start_ns` and then.
static void measure(int ready, size_t count, int64_t start_ns, int64_t end_ns, Times *times) {
    struct epoll_event events[EVENTS];
    int has_begun = 0, has_ended = 0;
    while (count || !has_ended) {
        int64_t now_ns = clock_ns(CLOCK_MONOTONIC), next_ns = has_begun ? end_ns : start_ns;
        int patience_ms = has_ended ? SILENCE_MS : (int)((next_ns - now_ns) / 1000000) + 1;
        int found = epoll_wait(ready, events, EVENTS, patience_ms < 0 ? 0 : patience_ms);
        if (found < 0) fail("epoll_wait");
        if (!found && has_ended) fail("no answer came");
        for (int place = 0; place < found; place++) {
            Connection *one = events[place].data.ptr;
            if (!receive_answer(one)) continue;
            now_ns = clock_ns(CLOCK_MONOTONIC);
            if (one->begun_ns >= start_ns) note_time(times, now_ns - one->begun_ns);
            if (now_ns < end_ns)
                send_record(one);
            else
                count--;
        }
        now_ns = clock_ns(CLOCK_MONOTONIC);
        if (!has_begun && now_ns >= start_ns) print_mark("begin"), has_begun = 1;
        if (has_begun && !has_ended && now_ns >= end_ns) print_mark("end"), has_ended = 1;
    }
}

int main(int argument_count, char **arguments) {
    if (argument_count != 6) {
        fprintf(stderr, "usage: main HOST PORT WARM_UP_MS DURATION_MS FRAMES\n");
        return 2;
    }
    fill_checksums();
    size_t count;
    Connection *connections = read_frames(arguments[5], &count);
    int ready = epoll_create1(0);
    for (Connection *one = connections; one < connections + count; one++) {
        one->socket = connect_to(arguments[1], arguments[2]);
        struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = one};
        if (epoll_ctl(ready, EPOLL_CTL_ADD, one->socket, &wanted)) fail("epoll_ctl");
    }
    int64_t start_ns = clock_ns(CLOCK_MONOTONIC) + atoll(arguments[3]) * 1000000;
    int64_t end_ns = start_ns + atoll(arguments[4]) * 1000000;
    Times times = {0};
    for (Connection *one = connections; one < connections + count; one++) send_record(one);
    measure(ready, count, start_ns, end_ns, &times);
    for (size_t place = 0; place < times.count; place++) printf("%u\n", times.microseconds[place]);
    return 0;
}
