#include "base/paths.h"

#include <cstdlib>

namespace tokamak {
namespace {

constexpr char kModelFile[] = "SmolLM2-135M-Instruct.Q4_1.gguf";

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace

std::string CacheDir() {
  const std::string cache = Environment("XDG_CACHE_HOME");
  if (!cache.empty() && cache.front() == '/') return cache + "/tokamak";
  const std::string home = Environment("HOME");
  return home.empty() ? std::string() : home + "/.cache/tokamak";
}

std::string DefaultModelPath() {
  std::string model = Environment("TOKAMAK_MODEL");
  if (!model.empty()) return model;
  const std::string cache = CacheDir();
  return cache.empty() ? std::string() : cache + "/models/" + kModelFile;
}

}  // namespace tokamak
