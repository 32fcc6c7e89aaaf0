/* Faults of a disk, for the files below SHIM_UNDER: each call fails with a chance of one in SHIM_ODDS, by SHIM_SEED.
   SHIM_KIND is eio, enospc or short; each fault adds a byte to SHIM_LOG.
   A file system that is really full below SHIM_WATCH adds a byte to SHIM_FULL, and being loaded one to SHIM_HELLO: so it is
   known whether anybody met it.
   And timers and file times as they are: libfaketime, preloaded after this, shifts absolute timers of every clock, not
   of the wall clock alone, and writes its own hour where a file server was asked for its "now". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <unistd.h>

static uint64_t state;
static const char *under, *kind, *noted, *watched, *full;
static unsigned odds;
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_ftruncate)(int, off_t);
static int (*real_link)(const char *, const char *);
static int (*real_linkat)(int, const char *, int, const char *, int);
static int (*real_rename)(const char *, const char *);

static void note(const char *path) {
    int saved = errno, file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (file >= 0) {
        if (real_write(file, "x", 1)) {}
        close(file);
    }
    errno = saved;
}

__attribute__((constructor)) static void begin(void) {
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    real_link = dlsym(RTLD_NEXT, "link");
    real_linkat = dlsym(RTLD_NEXT, "linkat");
    real_rename = dlsym(RTLD_NEXT, "rename");
    under = getenv("SHIM_UNDER");
    kind = getenv("SHIM_KIND");
    noted = getenv("SHIM_LOG");
    watched = getenv("SHIM_WATCH");
    full = getenv("SHIM_FULL");
    odds = getenv("SHIM_ODDS") ? (unsigned)atoi(getenv("SHIM_ODDS")) : 0;
    state = getenv("SHIM_SEED") ? strtoull(getenv("SHIM_SEED"), 0, 10) : 1;
    if (getenv("SHIM_HELLO")) note(getenv("SHIM_HELLO"));
}

static int strikes(void) {
    uint64_t z = __atomic_add_fetch(&state, 0x9e3779b97f4a7c15ULL, __ATOMIC_SEQ_CST);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    if ((z ^ (z >> 31)) % odds) return 0;
    note(noted);
    return 1;
}

static int is_path(const char *path) {
    /* other libraries may call before it is our turn to begin */
    if (!real_write) begin();
    return under && odds && path && !strncmp(path, under, strlen(under)) && strikes();
}

static int named(int fd, char *path, size_t room) {
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    int saved = errno;
    ssize_t length = readlink(name, path, room - 1);
    errno = saved;
    if (length < 0) return 0;
    path[length] = 0;
    return 1;
}

static int is_file(int fd) {
    char path[512];
    if (!real_write) begin();
    return under && odds && named(fd, path, sizeof path) && is_path(path);
}

/* the answer of the file system, as it is */
static ssize_t told(int fd, ssize_t answer) {
    char path[512];
    if (answer < 0 && errno == ENOSPC && watched && full && named(fd, path, sizeof path) &&
        !strncmp(path, watched, strlen(watched)))
        note(full);
    return answer;
}

static int wrong(void) {
    errno = kind && !strcmp(kind, "enospc") ? ENOSPC : EIO;
    return -1;
}

static int is_short(size_t length) { return kind && !strcmp(kind, "short") && length > 1; }

ssize_t write(int fd, const void *bytes, size_t length) {
    if (!is_file(fd)) return told(fd, real_write(fd, bytes, length));
    return is_short(length) ? real_write(fd, bytes, length / 2) : wrong();
}
ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t at) {
    if (!is_file(fd)) return told(fd, real_pwrite(fd, bytes, length, at));
    return is_short(length) ? real_pwrite(fd, bytes, length / 2, at) : wrong();
}
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) { return pwrite64(fd, bytes, length, at); }
int fsync(int fd) { return is_file(fd) ? wrong() : real_fsync(fd); }
int fdatasync(int fd) { return is_file(fd) ? wrong() : real_fdatasync(fd); }
int ftruncate64(int fd, off_t length) {
    return is_file(fd) ? wrong() : (int)told(fd, real_ftruncate(fd, length));
}
int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }
int link(const char *from, const char *to) { return is_path(to) ? wrong() : real_link(from, to); }
int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags) {
    return is_path(to) ? wrong() : real_linkat(from_dir, from, to_dir, to, flags);
}
int rename(const char *from, const char *to) { return is_path(to) ? wrong() : real_rename(from, to); }
int futimens(int fd, const struct timespec times[2]) { return (int)syscall(SYS_utimensat, fd, NULL, times, 0); }
int timerfd_settime(int fd, int flags, const struct itimerspec *next, struct itimerspec *last) {
    return (int)syscall(SYS_timerfd_settime, fd, flags, next, last);
}
