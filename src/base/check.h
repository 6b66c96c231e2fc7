// CHECK tests our own invariants. A failure is a bug in tokamak, never the fault of a file or a
// client; it prints the place and the message, and aborts.
#pragma once

#include <string_view>

namespace tokamak::internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              std::string_view message);
}  // namespace tokamak::internal

#define CHECK(condition) CHECK_MSG(condition, "")
#define CHECK_MSG(condition, message)                                            \
  do {                                                                           \
    if (!(condition)) [[unlikely]]                                               \
      ::tokamak::internal::CheckFailed(__FILE__, __LINE__, #condition, message); \
  } while (false)

#ifdef NDEBUG
#define DCHECK(condition) \
  do {                    \
  } while (false && (condition))
#else
#define DCHECK(condition) CHECK(condition)
#endif
