/* File calls of a process below one folder: written down, refused, or its end. For LD_PRELOAD.

   FAULTS_FOLDER   part of the paths that count
   FAULTS_AT       number of the call, from 1, from which on something happens; negative: at that
                   one only; 0: never
   FAULTS_ERROR    errno of these calls; 0: the process is killed
   FAULTS_LOG      a line per call: number, name, path, and the second path of a rename. At an
                   fsync of a file its contents are copied to LOG.NUMBER.

   faults_set does the same from inside the process. Only calls that change something count. Links
   and files written through a mapping are not seen; Orbax, TensorStore and Python use neither. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define LONGEST (2 * PATH_MAX)
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
static __thread int inside; /* calls of this file itself do not count */
static char folder[PATH_MAX], log_path[PATH_MAX];
static long at, calls;
static int error_number;

void faults_set(const char *f, long n, int error, const char *log) {
  pthread_mutex_lock(&one);
  snprintf(folder, sizeof folder, "%s", f);
  snprintf(log_path, sizeof log_path, "%s", log);
  at = n, error_number = error, calls = 0;
  pthread_mutex_unlock(&one);
}

long faults_calls(void) { return calls; }

__attribute__((constructor)) static void begin(void) {
  const char *f = getenv("FAULTS_FOLDER"), *n = getenv("FAULTS_AT");
  const char *e = getenv("FAULTS_ERROR"), *log = getenv("FAULTS_LOG");
  if (f) faults_set(f, n ? atol(n) : 0, e ? atoi(e) : 0, log ? log : "");
}

static void copy(int from, const char *to) {
  char own[64], block[1 << 16];
  ssize_t n;
  snprintf(own, sizeof own, "/proc/self/fd/%d", from);
  FILE *in = fopen(own, "r"), *out = fopen(to, "w");
  while (in && out && (n = fread(block, 1, sizeof block, in)) > 0) fwrite(block, 1, n, out);
  if (in) fclose(in);
  if (out) fclose(out);
}

/* True if the call is to fail; fd is that of an fsync, or -1. */
static int seen(const char *name, const char *path, const char *second, int fd) {
  if (inside || !folder[0] || !strstr(path, folder)) return 0;
  pthread_mutex_lock(&one);
  inside = 1;
  long number = ++calls;
  if (log_path[0]) {
    FILE *log = fopen(log_path, "a");
    if (log) fprintf(log, "%ld\t%s\t%s\t%s\n", number, name, path, second), fclose(log);
    struct stat kind;
    char to[PATH_MAX + 32];
    snprintf(to, sizeof to, "%s.%ld", log_path, number);
    if (fd >= 0 && !fstat(fd, &kind) && S_ISREG(kind.st_mode)) copy(fd, to);
  }
  int now = at > 0 ? number >= at : at < 0 && number == -at;
  if (now && !error_number) kill(getpid(), SIGKILL);
  inside = 0;
  pthread_mutex_unlock(&one);
  if (now) errno = error_number;
  return now;
}

/* The path of an open file, or of a name in an open folder. */
static const char *of(int fd, const char *name, char *path) {
  char own[64];
  path[0] = 0;
  if (name && (name[0] == '/' || fd == AT_FDCWD)) return name;
  snprintf(own, sizeof own, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(own, path, PATH_MAX - 1);
  path[n < 0 ? 0 : n] = 0;
  if (name) snprintf(path + strlen(path), PATH_MAX, "/%s", name);
  return path;
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = dlsym(RTLD_NEXT, #name)
#define ON_FD(result, call, known, args, given) \
  result call args { REAL(call); char p[LONGEST]; \
    if (!inside && folder[0] && seen(known, of(fd, 0, p), "", known[0] == 's' ? fd : -1)) \
      return -1; \
    return real given; }

ON_FD(ssize_t, write, "write", (int fd, const void *b, size_t n), (fd, b, n))
ON_FD(ssize_t, writev, "write", (int fd, const struct iovec *v, int n), (fd, v, n))
ON_FD(ssize_t, pwrite, "write", (int fd, const void *b, size_t n, off_t o), (fd, b, n, o))
ON_FD(ssize_t, pwrite64, "write", (int fd, const void *b, size_t n, off64_t o), (fd, b, n, o))
ON_FD(ssize_t, pwritev, "write", (int fd, const struct iovec *v, int n, off_t o), (fd, v, n, o))
ON_FD(ssize_t, pwritev64, "write", (int fd, const struct iovec *v, int n, off64_t o), (fd, v, n, o))
ON_FD(int, ftruncate, "write", (int fd, off_t n), (fd, n))
ON_FD(int, ftruncate64, "write", (int fd, off64_t n), (fd, n))
ON_FD(int, fsync, "sync", (int fd), (fd))
ON_FD(int, fdatasync, "sync", (int fd), (fd))

#define ON_PATH(call, known, args, given, a, b) \
  int call args { REAL(call); char p[LONGEST], q[LONGEST]; (void)p, (void)q; \
    if (!inside && folder[0] && seen(known, a, b, -1)) return -1; \
    return real given; }

ON_PATH(rename, "rename", (const char *a, const char *b), (a, b), a, b)
ON_PATH(renameat, "rename", (int x, const char *a, int y, const char *b), (x, a, y, b),
        of(x, a, p), of(y, b, q))
ON_PATH(renameat2, "rename", (int x, const char *a, int y, const char *b, unsigned f),
        (x, a, y, b, f), of(x, a, p), of(y, b, q))
ON_PATH(mkdir, "mkdir", (const char *a, mode_t m), (a, m), a, "")
ON_PATH(mkdirat, "mkdir", (int x, const char *a, mode_t m), (x, a, m), of(x, a, p), "")
ON_PATH(unlink, "unlink", (const char *a), (a), a, "")
ON_PATH(rmdir, "unlink", (const char *a), (a), a, "")
ON_PATH(unlinkat, "unlink", (int x, const char *a, int f), (x, a, f), of(x, a, p), "")

/* An open that makes or empties a file. */
#define ON_OPEN(call, first, args, given, path) \
  int call args { REAL(call); char p[LONGEST]; mode_t m = 0; (void)p; \
    if (flags & (O_CREAT | O_TRUNC)) { \
      va_list rest; va_start(rest, flags); m = va_arg(rest, mode_t); va_end(rest); \
      const char *made = path; int before = errno; \
      int makes = (flags & O_TRUNC) || access(made, F_OK); \
      errno = before; \
      if (!inside && folder[0] && makes && seen("create", made, "", -1)) return -1; } \
    return real given; }

ON_OPEN(open, a, (const char *a, int flags, ...), (a, flags, m), a)
ON_OPEN(open64, a, (const char *a, int flags, ...), (a, flags, m), a)
ON_OPEN(openat, a, (int x, const char *a, int flags, ...), (x, a, flags, m), of(x, a, p))
ON_OPEN(openat64, a, (int x, const char *a, int flags, ...), (x, a, flags, m), of(x, a, p))
