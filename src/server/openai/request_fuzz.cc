// Any body is parsed, or refused with a message. A parsed request can be validated.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "server/openai/embedding_request.h"
#include "server/openai/request.h"
#include "server/openai/status_response.h"
#include "server/openai/tokenize_request.h"

namespace {

using namespace tokamak;

void CheckRefusal(const Status& status) {
  if (!status.ok() && status.message().empty()) std::abort();
}

void Tokenize(const std::string& body) {
  const Result<TokenizeRequest> request = ParseTokenizeRequest(body);
  CheckRefusal(request.status());
  if (request.ok() && !request->text && request->conversation.messages.items().empty())
    std::abort();
  CheckRefusal(ParseDetokenizeRequest(body).status());
}

void Embed(const std::string& body) {
  const Result<OpenAiEmbeddingRequest> request = ParseEmbeddingRequest(body);
  CheckRefusal(request.status());
  if (request.ok() && request->engine_request.inputs.empty()) std::abort();
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
  const Result<CompletionRequest> request =
      data[0] % 2 == 0 ? ParseCompletionRequest(body) : ParseChatRequest(body);
  CheckRefusal(request.status());
  if (!request.ok()) return 0;
  const Status status = Validate(request->sampling, 1000);
  if (!status.ok() && LeadingPath(status.message()).empty()) std::abort();
  if (request->chat ? request->conversation.messages.items().empty() : request->prompts.empty())
    std::abort();
  return 0;
}
