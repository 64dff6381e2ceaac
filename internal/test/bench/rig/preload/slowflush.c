/*
 * Loaded into PostgreSQL before the C library: every flush of a file to disk takes longer, by FENCEGATE_FLUSH_DELAY_US microseconds, as on a
 * slower disk. What is flushed is on disk all the same.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

static void late(void) {
	const char *text = getenv("FENCEGATE_FLUSH_DELAY_US");
	long microseconds = text ? atol(text) : 0;
	struct timespec rest = {microseconds / 1000000, microseconds % 1000000 * 1000};
	int kept = errno;
	while (nanosleep(&rest, &rest) == -1 && errno == EINTR) {
	}
	errno = kept;
}

static int flush(const char *name, int fd) {
	int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
	if (next == NULL) {
		errno = ENOSYS;
		return -1;
	}
	int result = next(fd);
	late();
	return result;
}

int fsync(int fd) { return flush("fsync", fd); }

int fdatasync(int fd) { return flush("fdatasync", fd); }
