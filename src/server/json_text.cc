#include "server/json_text.h"

#include <nlohmann/json.hpp>

namespace tokamak {

std::string DumpJson(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace tokamak
