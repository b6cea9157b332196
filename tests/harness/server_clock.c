/* Shifts the wall clock of one server while it runs: the offset, in microseconds, is read from a mapped file. If the
 * number behind it is not 0, the clock stands still there, in microseconds since 1970.
 *
 * The clock is read by a raw system call, because looking up the real function would allocate, and the server's
 * allocator reads the clock. Only the wall clock is shifted; CLOCK_MONOTONIC and its kin stay true. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *offset, *still;

__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("TEST_SERVER_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, 2 * sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) offset = page, still = offset + 1;
}

int clock_gettime(clockid_t id, struct timespec *time) {
    int result = (int)syscall(SYS_clock_gettime, id, time);
    if (result == 0 && offset && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        if (*still) {
            time->tv_sec = *still / 1000000;
            time->tv_nsec = *still % 1000000 * 1000;
            return result;
        }
        long long nanos = time->tv_nsec + *offset % 1000000 * 1000;
        time->tv_sec += *offset / 1000000;
        if (nanos >= 1000000000) time->tv_sec++, nanos -= 1000000000;
        if (nanos < 0) time->tv_sec--, nanos += 1000000000;
        time->tv_nsec = nanos;
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
