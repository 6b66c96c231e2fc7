// One request to /v1/embeddings, from its token ids to its response.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/openai/embedding_request.h"
#include "server/transport/mailbox.h"
#include "server/transport/response_writer.h"
#include "tokamak/embed.h"

namespace tokamak {

// Used only on the I/O thread, by the coroutine that handles the request.
class Embedding {
 public:
  // All references outlive it.
  Embedding(Embedder& embedder, ResponseWriter& writer, OpenAiEmbeddingRequest prepared,
            std::string id, std::string model);

  // Submits the texts. Returns the status of the embedder.
  Status Submit();
  // Writes the response. Returns when it is complete or the client has left. Requires Submit.
  Awaitable<> Respond();

 private:
  struct Outcome {
    FinishReason reason = FinishReason::kStop;
    RequestTimings timings;
    HttpResponse response;
  };

  Embedder& embedder_;
  ResponseWriter& writer_;
  OpenAiEmbeddingRequest prepared_;
  const EmbeddingHead head_;
  RequestId request_ = 0;  // set by Submit
  Mailbox<Outcome> mail_;
};

}  // namespace tokamak
