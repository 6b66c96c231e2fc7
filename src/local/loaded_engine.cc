#include "local/loaded_engine.h"

#include "base/error.h"
#include "tokamak/embed.h"
#include "tokamak/engine.h"

namespace tokamak {

template <typename Interface>
size_t LoadedEngine<Interface>::LeastTokens(std::string_view text) const {
  return parts().tokenizer == nullptr ? 0 : parts().tokenizer->LeastTokens(text);
}

template <typename Interface>
Result<std::vector<int32_t>> LoadedEngine<Interface>::Tokenize(std::string_view text,
                                                               bool add_special,
                                                               bool parse_special) const {
  if (parts().tokenizer == nullptr) {
    return Unimplemented("{} has no tokenizer; give token ids", parts().model.name);
  }
  return parts().tokenizer->Encode(text,
                                   {.add_special = add_special, .parse_special = parse_special});
}

template <typename Interface>
std::string LoadedEngine<Interface>::Detokenize(const std::vector<int32_t>& ids) const {
  if (parts().tokenizer == nullptr) return "";
  Result<std::string> text = parts().tokenizer->Decode(ids, {.skip_special = false});
  return text.ok() ? *std::move(text) : std::string();
}

template <typename Interface>
std::string LoadedEngine<Interface>::TokenBytes(int32_t id) const {
  if (parts().tokenizer == nullptr) return "";
  return std::string(parts().tokenizer->TokenPiece(id));
}

template <typename Interface>
Profile LoadedEngine<Interface>::TakeProfile() {
  return parts().take_profile ? parts().take_profile() : Profile();
}

template class LoadedEngine<Engine>;
template class LoadedEngine<Embedder>;

}  // namespace tokamak
