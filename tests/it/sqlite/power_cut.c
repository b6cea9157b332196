/* Keeps what a power cut would leave at the least: each file as it was when it was synced last, in the folder that
   LEASEHOLD_TEST_SYNCED names, and in its file `syncs` one byte for each sync of a file. */

#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void join(char *path, const char *folder, const char *name) {
    if (snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX) abort();
}

/* A folder that was synced has forgotten for good what was deleted in it. */
static void forget_deleted(const char *folder, const char *synced) {
    char path[PATH_MAX];
    DIR *kept = opendir(folder);
    if (!kept) abort();
    for (struct dirent *entry; (entry = readdir(kept));) {
        if (strncmp(entry->d_name, "leases", 6)) continue;
        join(path, synced, entry->d_name);
        if (!access(path, F_OK)) continue;
        join(path, folder, entry->d_name);
        if (unlink(path)) abort();
    }
    closedir(kept);
}

static void keep(int fd) {
    const char *folder = getenv("LEASEHOLD_TEST_SYNCED");
    struct stat facts;
    char link[64], path[PATH_MAX], copy[PATH_MAX], fresh[PATH_MAX], block[4096];
    ssize_t length;
    if (!folder || fstat(fd, &facts)) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    if (length < 0) return;
    path[length] = 0;
    if (S_ISDIR(facts.st_mode)) return forget_deleted(folder, path);
    const char *name = strrchr(path, '/');
    if (!S_ISREG(facts.st_mode) || !name) return;
    join(copy, folder, name + 1);
    join(fresh, folder, "fresh");
    int to = open(fresh, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    /* Over the same descriptor: closing another one would drop the locks on the file. */
    for (off_t at = 0; (length = pread(fd, block, sizeof block, at)) > 0; at += length)
        if (write(to, block, length) != length) abort();
    close(to);
    if (rename(fresh, copy)) abort();
    join(copy, folder, "syncs");
    to = open(copy, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (write(to, ".", 1) != 1) abort();
    close(to);
}

int fsync(int fd) {
    int answer = syscall(SYS_fsync, fd);
    if (!answer) keep(fd);
    return answer;
}

int fdatasync(int fd) {
    int answer = syscall(SYS_fdatasync, fd);
    if (!answer) keep(fd);
    return answer;
}
