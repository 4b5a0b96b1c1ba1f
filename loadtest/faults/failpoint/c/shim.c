// Stands between a program and the kernel (LD_PRELOAD): a clock that is wrong,
// a disk that is slow or full. What it does is in a file that both sides map, so
// it changes while the program runs; while all of it is zero nothing changes.
// redis.go has the same layout.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct control {
	_Atomic int64_t shift;   // of the clock, microseconds
	_Atomic int64_t stopped; // where the clock stands still, microseconds since 1970; 0: it runs
	_Atomic int64_t delay;   // of fsync and fdatasync, microseconds
	_Atomic int64_t bounded; // 1: room bounds the writes
	_Atomic int64_t room;    // bytes that may still be written
	char path[256];          // below paths that contain this
};

static struct control *control;
static int (*machine_clock)(clockid_t, struct timespec *); // libc's own, which reads most clocks without a system call; NULL until begin has run

__attribute__((constructor)) static void begin(void) {
	*(void **)&machine_clock = dlsym(RTLD_NEXT, "clock_gettime");
	const char *path = getenv("SHIM_CONTROL");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (fd < 0) return;
	void *mapped = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (mapped != MAP_FAILED) control = mapped;
}

static int64_t shift(void) { return control ? atomic_load(&control->shift) : 0; }
static int64_t stopped(void) { return control ? atomic_load(&control->stopped) : 0; }

int clock_gettime(clockid_t id, struct timespec *t) {
	int wall = id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE;
	int64_t at = stopped();
	if (wall && at) {
		t->tv_sec = at / 1000000;
		t->tv_nsec = at % 1000000 * 1000;
		return 0;
	}
	int failed = machine_clock ? machine_clock(id, t) : (int)syscall(SYS_clock_gettime, id, t);
	if (!failed && wall) {
		int64_t us = (int64_t)t->tv_sec * 1000000 + t->tv_nsec / 1000 + shift();
		t->tv_sec = us / 1000000;
		t->tv_nsec = us % 1000000 * 1000 + t->tv_nsec % 1000;
	}
	return failed;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
	struct timespec now;
	(void)zone;
	clock_gettime(CLOCK_REALTIME, &now);
	t->tv_sec = now.tv_sec;
	t->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *into) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (into) *into = now.tv_sec;
	return now.tv_sec;
}

static void wait_for_disk(void) {
	int64_t us = control ? atomic_load(&control->delay) : 0;
	if (us > 0) {
		struct timespec pause = {us / 1000000, us % 1000000 * 1000};
		nanosleep(&pause, NULL);
	}
}

int fsync(int fd) { wait_for_disk(); return (int)syscall(SYS_fsync, fd); }
int fdatasync(int fd) { wait_for_disk(); return (int)syscall(SYS_fdatasync, fd); }

static int below_path(int fd) {
	char link[64] = "/proc/self/fd/", target[4096], digits[16];
	int n = 0, at = (int)strlen(link);
	do digits[n++] = (char)('0' + fd % 10); while ((fd /= 10) > 0);
	while (n > 0) link[at++] = digits[--n];
	link[at] = 0;
	ssize_t length = readlink(link, target, sizeof target - 1);
	if (length <= 0) return 0;
	target[length] = 0;
	return strstr(target, control->path) != NULL;
}

// A full disk takes a part of what is written, and then nothing.
ssize_t write(int fd, const void *data, size_t size) {
	if (control && atomic_load(&control->bounded) && below_path(fd)) {
		int64_t left = atomic_load(&control->room);
		if (left <= 0) {
			errno = ENOSPC;
			return -1;
		}
		if ((int64_t)size > left) size = (size_t)left;
		atomic_fetch_sub(&control->room, (int64_t)size);
	}
	return syscall(SYS_write, fd, data, size);
}
