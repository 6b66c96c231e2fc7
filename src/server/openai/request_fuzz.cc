// Any body: parsed or refused with a message, and what was parsed is validated without harm.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "server/errors.h"
#include "server/openai/embedding_call.h"
#include "server/openai/request.h"
#include "server/openai/tokenize_call.h"

namespace {

using namespace tokamak;

void CheckRefusal(const Status& status) {
  if (!status.ok() && status.message().empty()) std::abort();
}

void Tokenize(const std::string& body) {
  const Result<TokenizeCall> call = ParseTokenizeCall(body);
  CheckRefusal(call.status());
  if (call.ok() && !call->text && call->conversation.messages.items().empty()) std::abort();
  CheckRefusal(ParseDetokenizeCall(body).status());
}

void Embed(const std::string& body) {
  const Result<EmbeddingCall> call = ParseEmbeddingCall(body);
  CheckRefusal(call.status());
  if (call.ok() && call->request.inputs.empty()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string body(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 4 == 2) {
    Tokenize(body);
    Embed(body);
    return 0;
  }
  const Result<CompletionCall> call =
      data[0] % 2 == 0 ? ParseCompletionCall(body) : ParseChatCall(body);
  CheckRefusal(call.status());
  if (!call.ok()) return 0;
  const Status status = Validate(call->sampling, 1000);
  if (!status.ok() && LeadingPath(status.message()).empty()) std::abort();
  if (call->chat ? call->conversation.messages.items().empty() : call->prompts.empty())
    std::abort();
  return 0;
}
