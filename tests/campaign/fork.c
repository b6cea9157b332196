/* In a worker, `getppid` forks, and returns 0 in the child. It is a call that safe code can make, and that nothing else in a
 * worker makes. */
#include <sys/types.h>
#include <unistd.h>

pid_t getppid(void) { return fork(); }
