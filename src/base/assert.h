/* Programmer errors. A corrupt file, a full pool or a bad request is never an assertion. */
#ifndef BASE_ASSERT_H
#define BASE_ASSERT_H

/* Stays in release builds: use it outside inner loops. */
#define carat_assert(condition)                                                                    \
    ((condition) ? (void)0 : carat_assert_failed(#condition, __FILE__, __LINE__))

_Noreturn void carat_assert_failed(const char *condition, const char *file, int line);

#endif
