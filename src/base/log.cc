#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace tokamak {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

spdlog::logger& Logger() {
  // One logger per process, held by spdlog's registry. A library that the program opens may have a
  // copy of this function.
  static const std::shared_ptr<spdlog::logger> logger = [] {
    const char* const name = "tokamak";
    std::shared_ptr<spdlog::logger> made = spdlog::get(name);
    if (made != nullptr) return made;
    made = spdlog::stderr_color_mt(name);
    made->set_pattern("%^%L%$ %H:%M:%S.%e %v");
    made->set_level(spdlog::level::warn);
    return made;
  }();
  return *logger;
}

}  // namespace

void SetLogLevel(LogLevel level) { Logger().set_level(ToSpdlog(level)); }
bool LogEnabled(LogLevel level) { return Logger().should_log(ToSpdlog(level)); }
void LogMessage(LogLevel level, std::string_view message) {
  Logger().log(ToSpdlog(level), spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace tokamak
