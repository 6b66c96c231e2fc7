// One call of /v1/embeddings, from its token ids to its answer.
#pragma once

#include <memory>
#include <string>

#include "server/openai/prepare.h"
#include "server/transport/http.h"
#include "tokamak/engine.h"

namespace tokamak {

// Submits it; the exchange is answered later, unless the engine refuses. I/O thread.
Status StartEmbedding(Engine& engine, const std::shared_ptr<HttpExchange>& exchange,
                      PreparedEmbedding prepared, std::string id, std::string model);

}  // namespace tokamak
