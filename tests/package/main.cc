// Uses the installed library as an embedding program does: includes every public header and links
// what each one declares. Exits with 0 if errors come back as they should.
#include <tokamak/chat.h>
#include <tokamak/embed.h>
#include <tokamak/engine.h>
#include <tokamak/request.h>
#include <tokamak/sampling_params.h>
#include <tokamak/server.h>
#include <tokamak/status.h>

#include <cstdio>

namespace {

int failures = 0;

void Expect(const char* what, const tokamak::Status& status, tokamak::StatusCode code) {
  std::printf("%s: %s\n", what, status.ToString().c_str());
  if (status.code() != code || tokamak::StatusCodeName(code).empty()) ++failures;
}

}  // namespace

int main() {
  using tokamak::StatusCode;
  tokamak::EngineOptions options;
  options.model = "/nonexistent/model.gguf";
  Expect("Engine::Load", tokamak::Engine::Load(options).status(), StatusCode::kNotFound);
  Expect("Embedder::Load", tokamak::Embedder::Load(options).status(), StatusCode::kNotFound);
  Expect("FindTask", tokamak::FindTask(options).status(), StatusCode::kNotFound);
  Expect("MakeChatRequest", tokamak::MakeChatRequest({}, {}).status(), StatusCode::kUnimplemented);
  tokamak::SamplingParams sampling;
  tokamak::SamplingDefaults().ApplyTo(sampling);
  sampling.top_p = 1.5f;
  Expect("Validate", tokamak::Validate(sampling, 10).WithContext("here"),
         StatusCode::kInvalidArgument);
  // Linked but not called, because it needs an engine.
  auto* const volatile start = &tokamak::EmbeddedServer::Start;
  (void)start;
  return failures == 0 ? 0 : 1;
}
