// Uses the installed library as an embedding program does. Exits 0 if an error comes back as one.
#include <tokamak/engine.h>

#include <cstdio>

int main() {
  tokamak::EngineOptions options;
  options.model = "/nonexistent/model.gguf";
  const auto engine = tokamak::Engine::Load(options);
  std::printf("%s\n", engine.status().ToString().c_str());
  return engine.status().code() == tokamak::StatusCode::kNotFound ? 0 : 1;
}
