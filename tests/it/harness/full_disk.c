/* A disk that is full for the files that one server would grow, while a byte of a mapped file says so: 1 for those of
 * tables, 2 for those of the log, 3 for both. What needs no more room is written, as on a real disk. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static volatile unsigned char *full;

__attribute__((constructor)) static void map_switch(void) {
    const char *path = getenv("LEASEHOLD_TEST_DISK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, 1, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) full = page;
}

static int is_full(int file, off_t end) {
    struct stat facts;
    char link[64], path[4096];
    if (!full || !*full) return 0;
    if (fstat(file, &facts) != 0 || end <= facts.st_size) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return (*full & 1 && strstr(path, "/base/")) || (*full & 2 && strstr(path, "/pg_wal/"));
}

static ssize_t no_room(void) {
    errno = ENOSPC;
    return -1;
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t at) {
    if (is_full(file, at + (off_t)count)) return no_room();
    return syscall(SYS_pwrite64, file, bytes, count, at);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off_t at) { return pwrite(file, bytes, count, at); }

ssize_t pwritev(int file, const struct iovec *parts, int count, off_t at) {
    off_t end = at;
    for (int part = 0; part < count; part++) end += (off_t)parts[part].iov_len;
    if (is_full(file, end)) return no_room();
    return syscall(SYS_pwritev, file, parts, count, at, 0);
}

ssize_t pwritev64(int file, const struct iovec *parts, int count, off_t at) { return pwritev(file, parts, count, at); }

int posix_fallocate(int file, off_t at, off_t count) {
    if (is_full(file, at + count)) return ENOSPC;
    return syscall(SYS_fallocate, file, 0, at, count) == 0 ? 0 : errno;
}

int posix_fallocate64(int file, off_t at, off_t count) { return posix_fallocate(file, at, count); }
