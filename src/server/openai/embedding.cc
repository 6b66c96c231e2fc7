#include "server/openai/embedding.h"

#include "server/openai/other_fields.h"
#include "server/openai/status_response.h"

namespace tokamak {

Embedding::Embedding(Embedder& embedder, ResponseWriter& writer, OpenAiEmbeddingRequest prepared,
                     std::string id, std::string model)
    : embedder_(embedder),
      writer_(writer),
      prepared_(std::move(prepared)),
      head_({.model = std::move(model),
             .system_fingerprint = embedder.system_fingerprint(),
             .base64 = prepared_.base64,
             .timings = prepared_.timings}),
      mail_(writer) {
  int32_t tokens = 0;
  for (const EmbeddingInput& input : prepared_.engine_request.inputs) {
    tokens += static_cast<int32_t>(input.token_ids.size());
  }
  writer.notes.id = id;
  writer.notes.NotePrompt(tokens);
  prepared_.engine_request.label = std::move(id);
}

Status Embedding::Submit() {
  // Writes the response on the engine's thread, where it takes little time compared with computing
  // the vectors. On the I/O thread all streams would wait for it.
  const auto on_output =
      [sender = mail_.sender(), head = head_,
       ignored = IgnoredFieldHeaders(prepared_.unknown_fields)](const EmbeddingOutput& output) {
        const Status& error = output.error;
        const bool cancelled = error.code() == StatusCode::kCancelled;
        Outcome outcome;
        outcome.timings = output.timings;
        if (error.ok()) {
          outcome.response = {.body = FormatEmbeddings(head, output), .headers = ignored};
        } else {
          outcome.reason = cancelled ? FinishReason::kCancelled : FinishReason::kError;
          outcome.response = cancelled ? ShuttingDownResponse() : ErrorResponse(error);
        }
        sender.Put(std::move(outcome));
      };
  const Result<RequestId> request =
      embedder_.Submit(std::move(prepared_.engine_request), on_output);
  if (!request.ok()) return request.status();
  request_ = *request;
  return Status();
}

Awaitable<> Embedding::Respond() {
  std::optional<Outcome> outcome = co_await mail_.TakeOne(writer_);
  if (!outcome) co_return embedder_.Cancel(request_);
  writer_.notes.finish_reasons.push_back(outcome->reason);
  writer_.notes.timings.front() = outcome->timings;
  writer_.Respond(std::move(outcome->response));
}

}  // namespace tokamak
