#include "cli/flags.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <charconv>

#include "base/error.h"

namespace tokamak::cli {
namespace {

constexpr int kUsageError = 2;

// The whole text as a number of its kind.
template <typename T>
bool ParseNumber(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

template <typename T>
void Flags::AddOption(const std::string& names, T& value, const std::string& help,
                      const std::string& placeholder) {
  CLI::Option* option = app_->add_option(names, value, help);
  option->type_name(placeholder);
  if (!group_.empty()) option->group(group_);
  if constexpr (std::is_arithmetic_v<T>) option->capture_default_str();
  if constexpr (std::is_same_v<T, std::string>) {
    if (!value.empty()) option->capture_default_str();
  }
}

void Flags::Add(const std::string& names, bool& value, const std::string& help) {
  CLI::Option* option = app_->add_flag(names, value, help);
  if (!group_.empty()) option->group(group_);
}
void Flags::Add(const std::string& names, int32_t& value, const std::string& help) {
  AddOption(names, value, help, "N");
}
void Flags::Add(const std::string& names, uint16_t& value, const std::string& help) {
  AddOption(names, value, help, "N");
}
void Flags::Add(const std::string& names, float& value, const std::string& help) {
  AddOption(names, value, help, "X");
}
void Flags::Add(const std::string& names, double& value, const std::string& help) {
  AddOption(names, value, help, "X");
}
void Flags::Add(const std::string& names, std::string& value, const std::string& help) {
  AddOption(names, value, help, "TEXT");
}
void Flags::AddRequired(const std::string& names, std::string& value, const std::string& help) {
  app_->add_option(names, value, help)->type_name("TEXT")->required();
}
void Flags::Add(const std::string& names, std::optional<int32_t>& value, const std::string& help) {
  AddOption(names, value, help, "N");
}
void Flags::Add(const std::string& names, std::optional<float>& value, const std::string& help) {
  AddOption(names, value, help, "N");
}
void Flags::Add(const std::string& names, std::optional<uint64_t>& value, const std::string& help) {
  // CLI11 takes -1 for 2^64 - 1.
  const auto parse = [&value](const std::string& text) -> Status {
    uint64_t number = 0;
    if (!ParseNumber(text, number)) {
      return InvalidArgument("\"{}\" is not an integer from 0 to {}", text, UINT64_MAX);
    }
    value = number;
    return Status();
  };
  AddParsed(names, "N", parse, help);
}
void Flags::Add(const std::string& names, std::optional<std::string>& value,
                const std::string& help) {
  AddOption(names, value, help, "TEXT");
}

void Flags::Add(const std::string& names, std::vector<std::string>& value,
                const std::string& help) {
  CLI::Option* option = app_->add_option_function<std::vector<std::string>>(
      names, [&value](const std::vector<std::string>& given) { value = given; }, help);
  option->type_name("TEXT")->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  if (!group_.empty()) option->group(group_);
}

void Flags::Add(const std::string& names, std::optional<std::vector<int32_t>>& value,
                const std::string& help) {
  const auto parse = [&value](const std::string& text) -> Status {
    ASSIGN_OR_RETURN(value, ParseIntList(text));
    return Status();
  };
  AddParsed(names, "N,N,...", parse, help);
}

void Flags::AddParsed(const std::string& names, const std::string& placeholder,
                      std::function<Status(const std::string&)> parse, const std::string& help) {
  const auto take = [parse = std::move(parse), names](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      const Status status = parse(text);
      if (!status.ok()) throw CLI::ValidationError(names, std::string(status.message()));
    }
  };
  CLI::Option* option = app_->add_option_function<std::vector<std::string>>(names, take, help);
  option->type_name(placeholder)->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  if (!group_.empty()) option->group(group_);
}

void Flags::AddBytes(const std::string& names, int64_t& value, const std::string& help) {
  const auto parse = [&value](const std::string& text) -> Status {
    ASSIGN_OR_RETURN(value, ParseBytes(text));
    return Status();
  };
  AddParsed(names, "BYTES", parse, help);
}

Result<int64_t> ParseBytes(std::string_view text) {
  const std::string_view given = text;
  int shift = 0;
  if (text.ends_with("iB")) {
    text.remove_suffix(2);
  } else if (text.ends_with('B')) {
    text.remove_suffix(1);
  }
  constexpr std::string_view kUnits = "KMGT";
  if (!text.empty()) {
    const size_t unit = kUnits.find(static_cast<char>(text.back() & ~0x20));  // either case
    if (unit != std::string_view::npos) {
      shift = 10 * static_cast<int>(unit + 1);
      text.remove_suffix(1);
    }
  }
  int64_t number = 0;
  if (!ParseNumber(text, number) || number < 0 || number > (INT64_MAX >> shift)) {
    return InvalidArgument("\"{}\" is not a size such as 4096, 512M or 2GiB", given);
  }
  return number << shift;
}

Result<std::vector<int32_t>> ParseIntList(std::string_view text) {
  std::vector<int32_t> list;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    std::string_view piece = text.substr(0, comma);
    while (!piece.empty() && piece.front() == ' ') piece.remove_prefix(1);
    while (!piece.empty() && piece.back() == ' ') piece.remove_suffix(1);
    int32_t number = 0;
    if (!ParseNumber(piece, number)) return InvalidArgument("\"{}\" is not a number", piece);
    list.push_back(number);
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return list;
}

struct CommandLine::Impl {
  CLI::App app;
  std::function<int()> chosen;
};

CommandLine::CommandLine(const std::string& name, const std::string& description,
                         const std::string& version)
    : impl_(std::make_unique<Impl>()) {
  CLI::App& app = impl_->app;
  app.name(name);
  app.description(description);
  app.set_version_flag("--version", version);
  app.set_help_all_flag("--help-all", "The help of every command");
  app.require_subcommand(1);
  app.set_config("--config", "", "Read flags from a file: [run] temperature=0.5")->group("Options");
  app.fallthrough();
  app.failure_message([](const CLI::App* failed, const CLI::Error& error) {
    std::string command;
    for (const CLI::App* at = failed->get_subcommands().empty() ? failed
                                                                : failed->get_subcommands().front();
         at != nullptr; at = at->get_parent()) {
      command = at->get_name() + (command.empty() ? "" : " ") + command;
    }
    return fmt::format("error: {}\nTry: {} --help\n", error.what(), command);
  });
}

CommandLine::~CommandLine() = default;

Flags CommandLine::Command(const std::string& name, const std::string& summary,
                           const std::string& examples, std::function<int()> run) {
  CLI::App* parent = &impl_->app;
  std::string leaf = name;
  if (const size_t space = name.find(' '); space != std::string::npos) {
    const std::string outer = name.substr(0, space);
    leaf = name.substr(space + 1);
    CLI::App* found = nullptr;
    for (CLI::App* known : impl_->app.get_subcommands([](CLI::App*) { return true; })) {
      if (known->get_name() == outer) found = known;
    }
    if (found == nullptr) {
      found = impl_->app.add_subcommand(outer, "");
      found->require_subcommand(1);
      found->fallthrough();
    }
    found->description(
        found->get_description().empty() ? summary : found->get_description() + "; " + summary);
    parent = found;
  }
  CLI::App* command = parent->add_subcommand(leaf, summary);
  command->footer("Examples:\n" + examples);
  command->fallthrough();
  command->callback([this, run = std::move(run)] { impl_->chosen = run; });
  return Flags(command);
}

int CommandLine::Run(int argc, char** argv) {
  try {
    impl_->app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return impl_->app.exit(error) == 0 ? 0 : kUsageError;
  }
  return impl_->chosen ? impl_->chosen() : kUsageError;
}

}  // namespace tokamak::cli
