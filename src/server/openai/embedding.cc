#include "server/openai/embedding.h"

#include <utility>

#include "server/openai/embedding_call.h"
#include "server/openai/errors.h"
#include "server/openai/other_fields.h"

namespace tokamak {

Status StartEmbedding(Engine& engine, const std::shared_ptr<HttpExchange>& exchange,
                      PreparedEmbedding prepared, std::string id, std::string model) {
  EmbeddingHead head = {.model = std::move(model),
                        .system_fingerprint = engine.system_fingerprint(),
                        .base64 = prepared.call.base64,
                        .timings = prepared.call.timings};
  const auto ignored = IgnoredFieldHeaders(prepared.call.unknown_fields);
  int32_t tokens = 0;
  for (const EmbeddingInput& input : prepared.call.request.inputs) {
    tokens += static_cast<int32_t>(input.token_ids.size());
  }
  exchange->notes.id = id;
  exchange->notes.NotePrompt(tokens);
  prepared.call.request.label = std::move(id);
  // The answer is written on the engine's thread: in time it is a small part of what its vectors
  // took, and on the I/O thread streams would stand still.
  const auto on_output = [exchange, head = std::move(head),
                          ignored](const EmbeddingOutput& output) {
    const Status& error = output.error;
    const bool cancelled = error.code() == StatusCode::kCancelled;
    HttpResponse response =
        error.ok()  ? HttpResponse{.body = FormatEmbeddings(head, output), .headers = ignored}
        : cancelled ? ShuttingDownResponse()
                    : ErrorResponse(error);
    const FinishReason reason = error.ok()  ? FinishReason::kStop
                                : cancelled ? FinishReason::kCancelled
                                            : FinishReason::kError;
    exchange->Post(
        [exchange, reason, timings = output.timings, response = std::move(response)]() mutable {
          exchange->notes.finish_reasons.push_back(reason);
          exchange->notes.timings.front() = timings;
          exchange->Respond(std::move(response));
        });
  };
  const Result<RequestId> request =
      engine.SubmitEmbedding(std::move(prepared.call.request), on_output);
  if (!request.ok()) return request.status();
  exchange->OnClientGone([&engine, request = *request] { engine.Cancel(request); });
  return Status();
}

}  // namespace tokamak
