/* A disk that is full for the files that some programs would grow, while a byte of a mapped file says so. Its lowest bit is
 * for the files whose path has the first of the texts in TEST_DISK_PARTS, which colons separate; the next bit for
 * the second; and so on. What needs no more room is written, as on a real disk: a hole in a file has no room. */
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
static char parts[4096];

__attribute__((constructor)) static void map_switch(void) {
    const char *path = getenv("TEST_DISK"), *of_parts = getenv("TEST_DISK_PARTS");
    if (of_parts) snprintf(parts, sizeof parts, "%s", of_parts);
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, 1, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) full = page;
}

static int is_of_full_part(const char *path) {
    char rest[sizeof parts], *next = rest;
    memcpy(rest, parts, sizeof rest);
    for (int part = 0; next; part++) {
        char *text = strsep(&next, ":");
        if (*full >> part & 1 && strstr(path, text)) return 1;
    }
    return 0;
}

/* With this very descriptor: to open and close another one would end every lock that the process has on the file. */
static int has_room(int file, off_t at, off_t end) {
    off_t position = lseek(file, 0, SEEK_CUR);
    off_t hole = lseek(file, at, SEEK_HOLE);
    if (position >= 0) lseek(file, position, SEEK_SET);
    return hole >= end;
}

static int is_full(int file, off_t at, size_t count) {
    char link[64], path[4096];
    if (!full || !*full || at < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_of_full_part(path) && !has_room(file, at, at + (off_t)count);
}

/* Where a plain write begins; below zero for what has no positions, as a pipe. */
static off_t position(int file) {
    struct stat facts;
    int flags = fcntl(file, F_GETFL);
    int appends = flags >= 0 && flags & O_APPEND && fstat(file, &facts) == 0;
    return appends ? facts.st_size : lseek(file, 0, SEEK_CUR);
}

static ssize_t no_room(void) {
    errno = ENOSPC;
    return -1;
}

ssize_t write(int file, const void *bytes, size_t count) {
    if (full && *full && is_full(file, position(file), count)) return no_room();
    return syscall(SYS_write, file, bytes, count);
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t at) {
    if (is_full(file, at, count)) return no_room();
    return syscall(SYS_pwrite64, file, bytes, count, at);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off_t at) { return pwrite(file, bytes, count, at); }

ssize_t pwritev(int file, const struct iovec *parts, int count, off_t at) {
    size_t bytes = 0;
    for (int part = 0; part < count; part++) bytes += parts[part].iov_len;
    if (is_full(file, at, bytes)) return no_room();
    return syscall(SYS_pwritev, file, parts, count, at, 0);
}

ssize_t pwritev64(int file, const struct iovec *parts, int count, off_t at) { return pwritev(file, parts, count, at); }

int posix_fallocate(int file, off_t at, off_t count) {
    if (is_full(file, at, (size_t)count)) return ENOSPC;
    return syscall(SYS_fallocate, file, 0, at, count) == 0 ? 0 : errno;
}

int posix_fallocate64(int file, off_t at, off_t count) { return posix_fallocate(file, at, count); }
