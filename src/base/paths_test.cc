#include "base/paths.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace tokamak {
namespace {

// Sets or unsets an environment variable until the end of the scope.
class ScopedEnvironment {
 public:
  ScopedEnvironment(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    Set(value);
  }
  ~ScopedEnvironment() { Set(old_ ? old_->c_str() : nullptr); }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  void Set(const char* value) {
    if (value != nullptr) {
      ::setenv(name_, value, 1);
    } else {
      ::unsetenv(name_);
    }
  }
  const char* name_;
  std::optional<std::string> old_;
};

TEST(Paths, TheCacheFollowsXdgThenHome) {
  ScopedEnvironment home("HOME", "/home/someone");
  {
    ScopedEnvironment cache("XDG_CACHE_HOME", "/var/cache/me");
    EXPECT_EQ(CacheDir(), "/var/cache/me/tokamak");
  }
  for (const char* ignored : {"", "relative/cache"}) {
    ScopedEnvironment cache("XDG_CACHE_HOME", ignored);
    EXPECT_EQ(CacheDir(), "/home/someone/.cache/tokamak");
  }
  ScopedEnvironment cache("XDG_CACHE_HOME", nullptr);
  EXPECT_EQ(CacheDir(), "/home/someone/.cache/tokamak");
  ScopedEnvironment nowhere("HOME", nullptr);
  EXPECT_EQ(CacheDir(), "");
}

TEST(Paths, TheDefaultModelIsTheUsersOwnThenTheFetchedOne) {
  ScopedEnvironment cache("XDG_CACHE_HOME", "/c");
  ScopedEnvironment model("TOKAMAK_MODEL", "/m/my.gguf");
  EXPECT_EQ(DefaultModelPath(), "/m/my.gguf");
  ScopedEnvironment none("TOKAMAK_MODEL", "");
  EXPECT_EQ(DefaultModelPath(), "/c/tokamak/models/SmolLM2-135M-Instruct.Q4_1.gguf");
}

}  // namespace
}  // namespace tokamak
