// One request of /v1/embeddings, from its token ids to its answer.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/openai/embedding_request.h"
#include "server/openai/prepare.h"
#include "server/transport/mailbox.h"
#include "server/transport/response_writer.h"
#include "tokamak/engine.h"

namespace tokamak {

// Used on the I/O thread alone, by the coroutine that answers the writer.
class Embedding {
 public:
  // All references outlive it.
  Embedding(Engine& engine, ResponseWriter& writer, PreparedEmbedding prepared, std::string id,
            std::string model);

  // The engine may refuse.
  Status Submit();
  // After Submit: answers the writer. Returns when that is done, or the client has left.
  Awaitable<> Respond();

 private:
  struct Outcome {
    FinishReason reason = FinishReason::kStop;
    RequestTimings timings;
    HttpResponse response;
  };

  Engine& engine_;
  ResponseWriter& writer_;
  PreparedEmbedding prepared_;
  const EmbeddingHead head_;
  RequestId request_ = 0;  // since Submit
  Mailbox<Outcome> mail_;
};

}  // namespace tokamak
