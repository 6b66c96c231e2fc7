// The engine or the embedder behind a server.
#pragma once

#include "tokamak/embed.h"
#include "tokamak/engine.h"

namespace tokamak {

struct ServedModel {
  ServedModel(Engine& e) : loaded(e), engine(&e) {}      // NOLINT(google-explicit-constructor)
  ServedModel(Embedder& e) : loaded(e), embedder(&e) {}  // NOLINT(google-explicit-constructor)

  LoadedModel& loaded;
  Engine* engine = nullptr;      // null: the model embeds
  Embedder* embedder = nullptr;  // null: the model generates
};

}  // namespace tokamak
