// Any body is parsed, or refused with a message. A parsed request can be validated. Bits of the
// first byte choose the kind of request, and whether the model takes images.
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "server/openai/embedding_request.h"
#include "server/openai/request.h"
#include "server/openai/status_response.h"
#include "server/openai/tokenize_request.h"

namespace {

using namespace tokamak;

void CheckRefusal(const Status& status) {
  if (!status.ok() && status.message().empty()) std::abort();
}

const std::optional<ImageInfo> kImages = ImageInfo{.placeholder = "<image>",
                                                   .max_images = 2,
                                                   .max_bytes = 64,
                                                   .options = {.min_pixels = 4, .max_pixels = 64},
                                                   .max_scaled_pixels = 100};

// The template sees as many images as there are.
void CheckImages(const ChatInput& conversation, const std::vector<MessageImage>& images) {
  size_t parts = 0;
  for (const jinja::Value& message : conversation.messages.items()) {
    const jinja::Value* content = message.dict().Find("content");
    if (content == nullptr || !content->is(jinja::Type::kList)) continue;
    for (const jinja::Value& part : content->items()) {
      parts += part.dict().Find("type")->text() == "image";
    }
  }
  if (parts != images.size() || parts > 2) std::abort();
  for (const MessageImage& image : images) {
    if (image.bytes.empty() || image.bytes.size() > 64 || image.path.empty()) std::abort();
    if (image.options.max_pixels.value_or(64) > 100) std::abort();
  }
}

void Tokenize(const std::string& body, const std::optional<ImageInfo>& images) {
  const Result<TokenizeRequest> request = ParseTokenizeRequest(body, images);
  CheckRefusal(request.status());
  if (request.ok()) CheckImages(request->conversation, request->images);
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
  const std::optional<ImageInfo> images = (data[0] & 4) != 0 ? kImages : std::nullopt;
  if (data[0] % 4 == 2) {
    Tokenize(body, images);
    Embed(body);
    return 0;
  }
  const Result<CompletionRequest> request =
      data[0] % 2 == 0 ? ParseCompletionRequest(body) : ParseChatRequest(body, {}, images);
  CheckRefusal(request.status());
  if (!request.ok()) return 0;
  CheckImages(request->conversation, request->images);
  const Status status = Validate(request->sampling, 1000);
  if (!status.ok() && LeadingPath(status.message()).empty()) std::abort();
  if (request->chat ? request->conversation.messages.items().empty() : request->prompts.empty())
    std::abort();
  return 0;
}
