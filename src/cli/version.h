/* What was built: release, commit, build type. */
#ifndef CLI_VERSION_H
#define CLI_VERSION_H

const char *version_commit(void); /* short hash at configure time, or "unknown" */
int version_build_number(void);   /* commits up to it, or 0 */
const char *version_build_type(void);
const char *version_libraries(void); /* optional ones built in: "jansson libedit" or "none" */

#endif
