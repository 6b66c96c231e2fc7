#include "server/openai/api.h"

#include <fmt/core.h>

#include <ctime>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/random_bits.h"
#include "base/text.h"
#include "server/openai/embedding.h"
#include "server/openai/openapi.h"
#include "server/openai/other_fields.h"
#include "server/openai/response.h"
#include "server/openai/status_response.h"

namespace tokamak {
namespace {

// Limits the names in the log, because a client can send as many as it likes.
constexpr size_t kMaxLoggedFields = 256;
constexpr size_t kMaxFieldBytes = 64;

constexpr std::string_view kDocumentPath = "/openapi.json";
constexpr std::string_view kModelsPath = "/v1/models";
constexpr std::string_view kModelPath = "/v1/models/";

// Decodes escapes such as "%2F" and keeps everything else.
std::string DecodePercent(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '%' && i + 2 < text.size();
    const auto byte = escape ? ParseNumber<uint8_t>(text.substr(i + 1, 2), 16) : std::nullopt;
    decoded += byte ? static_cast<char>(*byte) : text[i];
    i += byte ? 2 : 0;
  }
  return decoded;
}

size_t BytesOf(const std::vector<MessageImage>& images) {
  size_t bytes = 0;
  for (const MessageImage& image : images) bytes += image.bytes.size();
  return bytes;
}

}  // namespace

OpenAiApi::OpenAiApi(const Shared& shared, Options options)
    : shared_(shared),
      loaded_(shared.served.loaded),
      options_(std::move(options)),
      started_(std::time(nullptr)),
      preparer_(shared.served, options_.model_id, options_.requests, options_.parsers,
                options_.images),
      id_salt_(RandomBits()) {}

bool OpenAiApi::IsGetPath(std::string_view path) {
  return path == kDocumentPath || path == kModelsPath || path.starts_with(kModelPath);
}

void OpenAiApi::Get(ResponseWriter& writer) const {
  const std::string_view path = writer.request().path;
  if (path == kDocumentPath) return writer.Respond({.body = std::string(OpenApiDocument())});
  if (path == kModelsPath) {
    return writer.Respond({.body = FormatModels(options_.model_id, started_, loaded_.model())});
  }
  // A model's name may have slashes, plain or encoded.
  const std::string_view name = path.substr(kModelPath.size());
  if (name != options_.model_id && DecodePercent(name) != options_.model_id) {
    return writer.Respond(
        ErrorResponse(NotFound("model: this server has \"{}\" and no other", options_.model_id)));
  }
  writer.Respond({.body = FormatModel(options_.model_id, started_, loaded_.model())});
}

Awaitable<> OpenAiApi::Post(ResponseWriter& writer) {
  const std::string_view path = writer.request().path;
  if (path == "/tokenize" || path == "/detokenize") {
    co_await Tokenize(writer, path == "/detokenize");
  } else if (path == "/v1/embeddings") {
    co_await Embed(writer);
  } else {
    co_await Complete(writer, path == "/v1/chat/completions");
  }
}

Awaitable<> OpenAiApi::Complete(ResponseWriter& writer, bool chat) {
  Preparation::Pending pending(shared_.preparation, writer);
  const auto prepare = [this, chat](std::string body) {
    return preparer_.Prepare(chat, std::move(body));
  };
  Result<PreparedCompletion> prepared = co_await pending.Run(prepare);
  if (prepared.ok() && !prepared->request.images.empty()) {
    prepared = co_await AddImages(pending, prepared, prepared->request.images);
  }
  std::optional<Completion> completion;
  Status status = prepared.status();
  if (status.ok()) {
    NoteIgnored(prepared->request.unknown_fields);
    status = Submit(writer, *std::move(prepared), completion);
  }
  pending.End();
  if (!status.ok()) co_return writer.Respond(Refusal(status));
  co_await completion->Respond();
}

template <typename Prepared>
Awaitable<Result<Prepared>> OpenAiApi::AddImages(Preparation::Pending& pending,
                                                 Result<Prepared>& prepared,
                                                 std::vector<MessageImage>& images) {
  const Status fetched = co_await FetchImages(pending, images);
  if (!fetched.ok()) co_return fetched;
  const size_t bytes = BytesOf(images);
  auto add_images = [this, given = *std::move(prepared)]() mutable {
    return preparer_.AddImages(std::move(given));
  };
  Result<Prepared> added = co_await pending.RunLarge(bytes, std::move(add_images));
  co_return added;
}

Awaitable<Status> OpenAiApi::FetchImages(Preparation::Pending& pending,
                                         std::vector<MessageImage>& images) {
  struct Fetched {
    size_t index;
    Result<WebClient::File> file;
  };
  Mailbox<Fetched> mail(pending.writer());
  std::vector<std::unique_ptr<WebClient::Fetch>> fetches;
  for (size_t i = 0; i < images.size(); ++i) {
    if (!images[i].on_web()) continue;
    const auto put = [sender = mail.sender(), i](Result<WebClient::File> file) {
      sender.Put({i, std::move(file)});
    };
    fetches.push_back(options_.images.web->Get(images[i].url, put));
  }
  for (size_t left = fetches.size(); left > 0;) {
    std::vector<Fetched> files = co_await pending.Receive(mail);
    if (files.empty()) co_return Preparation::Unwanted();
    for (Fetched& fetched : files) {
      MessageImage& image = images[fetched.index];
      if (!fetched.file.ok()) co_return ImageError(image.path, fetched.file.status());
      image.url.clear();
      image.bytes = std::move(fetched.file->bytes);
      image.counted = std::move(fetched.file->counted);
      --left;
    }
  }
  co_return Status();
}

Awaitable<> OpenAiApi::Embed(ResponseWriter& writer) {
  Preparation::Pending pending(shared_.preparation, writer);
  const auto prepare = [this](std::string body) { return preparer_.Embed(std::move(body)); };
  Result<OpenAiEmbeddingRequest> prepared = co_await pending.Run(prepare);
  std::optional<Embedding> embedding;
  Status status = prepared.status();
  if (status.ok()) {
    NoteIgnored(prepared->unknown_fields);
    embedding.emplace(*shared_.served.embedder, writer, *std::move(prepared), NextId("embd"),
                      options_.model_id);
    status = embedding->Submit();
  }
  pending.End();
  if (!status.ok()) co_return writer.Respond(Refusal(status));
  co_await embedding->Respond();
}

Awaitable<> OpenAiApi::Tokenize(ResponseWriter& writer, bool back) {
  Preparation::Pending pending(shared_.preparation, writer);
  const auto prepare = [this, back](std::string body) {
    return back ? preparer_.Detokenize(std::move(body)) : preparer_.Tokenize(std::move(body));
  };
  Result<PreparedResponse> prepared = co_await pending.Run(prepare);
  if (prepared.ok() && !prepared->images.empty()) {
    prepared = co_await AddImages(pending, prepared, prepared->images);
  }
  if (!prepared.ok()) co_return writer.Respond(Refusal(prepared.status()));
  NoteIgnored(prepared->unknown_fields);
  writer.Respond({.body = std::move(prepared->body),
                  .headers = IgnoredFieldHeaders(prepared->unknown_fields)});
}

Status OpenAiApi::Submit(ResponseWriter& writer, PreparedCompletion prepared,
                         std::optional<Completion>& completion) {
  Client client = shared_.access.Identify(writer.request());
  if (prepared.request.priority > client.max_priority) {
    return InvalidArgument(
        "priority: must be at most {}, got {}; for higher ones, the server's key file "
        "must have priority=N after the key",
        client.max_priority, prepared.request.priority);
  }
  prepared.client = std::move(client.name);
  const bool chat = prepared.request.chat;
  ResponseHead head;
  head.chat = chat;
  head.id = NextId(chat ? "chatcmpl" : "cmpl");
  head.created = std::time(nullptr);
  head.model = options_.model_id;
  head.system_fingerprint = loaded_.system_fingerprint();
  completion.emplace(*shared_.served.engine, writer, std::move(prepared), std::move(head),
                     options_.requests, preparer_.token_sizes(), shared_.text_maker);
  const Status status = completion->Submit();
  // The engine's message names the prompt, which the client of a conversation does not know.
  constexpr std::string_view kPrompt = "prompt: ";
  if (chat && status.message().starts_with(kPrompt)) {
    return Status(status.code(),
                  "messages: " + std::string(status.message().substr(kPrompt.size())));
  }
  return status;
}

std::string OpenAiApi::NextId(std::string_view kind) {
  return fmt::format("{}-{:016x}{:08x}", kind, id_salt_, next_id_++);
}

// Logs only names, because the values may be private.
void OpenAiApi::NoteIgnored(const std::vector<std::string>& names) {
  unknown_fields_ += static_cast<int64_t>(names.size());
  std::vector<std::string> fresh;
  for (const std::string& name : names) {
    if (logged_fields_.size() == kMaxLoggedFields) break;
    if (logged_fields_.insert(name.substr(0, kMaxFieldBytes)).second) fresh.push_back(name);
  }
  if (fresh.empty()) return;
  LogWarning("ignored fields of a request: {} (each name is logged once)", IgnoredFieldList(fresh));
}

// A working server refuses a request as kUnavailable if a queue is full: 429. It is 503 if the
// server will not take the request later either.
HttpResponse OpenAiApi::Refusal(const Status& status) const {
  if (status.code() == StatusCode::kCancelled) return ShuttingDownResponse();
  const bool later = status.code() == StatusCode::kUnavailable && loaded_.health().ok();
  if (!later) return ErrorResponse(status);
  return shared_.preparation.draining() ? ShuttingDownResponse()
                                        : ErrorResponse(429, status.message(), "overloaded");
}

}  // namespace tokamak
