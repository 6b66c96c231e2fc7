// Any body: parsed or refused with a message, and what was parsed is validated without harm.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "server/openai_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tokamak;
  if (size == 0) return 0;
  const std::string body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Result<CompletionCall> call =
      data[0] % 2 == 0 ? ParseCompletionCall(body) : ParseChatCall(body);
  if (!call.ok()) {
    if (call.status().message().empty()) std::abort();
    return 0;
  }
  const Status status = Validate(call->sampling, 1000);
  if (!status.ok() && LeadingPath(status.message()).empty()) std::abort();
  if (call->chat ? call->conversation.messages.items().empty() : call->prompts.empty())
    std::abort();
  return 0;
}
