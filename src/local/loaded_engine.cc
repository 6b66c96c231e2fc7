#include "local/loaded_engine.h"

#include "base/error.h"

namespace tokamak {

size_t LoadedEngine::LeastTokens(std::string_view text) const {
  return parts().tokenizer == nullptr ? 0 : parts().tokenizer->LeastTokens(text);
}

Result<std::vector<int32_t>> LoadedEngine::Tokenize(std::string_view text, bool add_special,
                                                    bool parse_special) const {
  if (parts().tokenizer == nullptr) {
    return Unimplemented("{} has no tokenizer; give token ids", model().name);
  }
  return parts().tokenizer->Encode(text,
                                   {.add_special = add_special, .parse_special = parse_special});
}

std::string LoadedEngine::Detokenize(const std::vector<int32_t>& ids) const {
  if (parts().tokenizer == nullptr) return "";
  Result<std::string> text = parts().tokenizer->Decode(ids, {.skip_special = false});
  return text.ok() ? *std::move(text) : std::string();
}

std::string LoadedEngine::TokenBytes(int32_t id) const {
  if (parts().tokenizer == nullptr) return "";
  return std::string(parts().tokenizer->TokenPiece(id));
}

Profile LoadedEngine::TakeProfile() {
  return parts().take_profile ? parts().take_profile() : Profile();
}

}  // namespace tokamak
