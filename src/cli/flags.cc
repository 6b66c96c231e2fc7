#include "cli/flags.h"

#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "cli/config_file.h"

namespace tokamak::cli {
namespace {

constexpr int kOutputError = 1;
constexpr int kUsageError = 2;

// Stands for the empty value in "--name=", where CLI11 would otherwise take the next argument. No
// argument of a program can contain it.
constexpr char kEmptyValue = '\0';

// Returns the arguments in CLI11's order: the last one first.
std::vector<std::string> Arguments(int argc, char** argv) {
  std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  for (std::string& arg : args) {
    if (arg.starts_with("--") && arg.find('=') == arg.size() - 1) arg += kEmptyValue;
  }
  std::reverse(args.begin(), args.end());
  return args;
}

// Reads the --config file in place of CLI11, which has its own rules.
class ConfigReader : public CLI::Config {
 public:
  explicit ConfigReader(const CLI::App* root) : root_(root) {}

  std::string to_config(const CLI::App* /*app*/, bool /*default_also*/, bool /*descriptions*/,
                        std::string /*prefix*/) const override {
    return "";  // never used
  }

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    const std::string text{std::istreambuf_iterator<char>(input), {}};
    const Result<std::vector<ConfigEntry>> entries = ParseConfig(text);
    if (!entries.ok()) Fail(std::string(entries.status().message()));
    std::vector<CLI::ConfigItem> read;
    for (const ConfigEntry& entry : *entries) {
      CheckKnown(entry);
      CLI::ConfigItem item;
      item.parents = entry.section;
      item.name = entry.name;
      // Merges repeated options into one item, because CLI11 ignores a second item.
      const auto same = std::find_if(read.begin(), read.end(), [&item](const auto& other) {
        return other.parents == item.parents && other.name == item.name;
      });
      CLI::ConfigItem& to = same == read.end() ? read.emplace_back(std::move(item)) : *same;
      to.inputs.push_back(entry.value);
    }
    return read;
  }

 private:
  [[noreturn]] static void Fail(const std::string& message) {
    throw CLI::ValidationError("--config", message);
  }

  void CheckKnown(const ConfigEntry& entry) const {
    const CLI::App* app = root_;
    std::string command;
    for (const std::string& name : entry.section) {
      command += (command.empty() ? "" : " ") + name;
      const auto below =
          app->get_subcommands([&name](const CLI::App* sub) { return sub->get_name() == name; });
      if (below.empty()) {
        Fail(fmt::format("line {}: there is no command \"{}\"", entry.line, command));
      }
      app = below.front();
    }
    if (app->get_option_no_throw("--" + entry.name) != nullptr ||
        app->get_option_no_throw(entry.name) != nullptr) {
      return;
    }
    Fail(command.empty()
             ? fmt::format("line {}: \"{}\" comes before the first section; put it below a command "
                           "such as [run]",
                           entry.line, entry.name)
             : fmt::format("line {}: {} has no option \"{}\"", entry.line, command, entry.name));
  }

  const CLI::App* root_;
};

// The usage text of `command` when none of its subcommands is given.
std::string CommandList(const CLI::App* app, const std::string& command) {
  std::string text = app->get_parent() == nullptr ? app->get_description() + "\n" : "";
  text += fmt::format("Usage: {} COMMAND [OPTIONS]\n\nCommands:\n", command);
  for (const CLI::App* below : app->get_subcommands([](const CLI::App*) { return true; })) {
    text += fmt::format("  {:<12}  {}\n", below->get_name(), below->get_description());
  }
  return text + fmt::format("\n{} COMMAND --help describes a command.\n", command);
}

std::string FailureMessage(const CLI::App* root, const CLI::Error& error) {
  const CLI::App* chosen = root;
  std::string command = root->get_name();
  while (!chosen->get_subcommands().empty()) {
    chosen = chosen->get_subcommands().front();
    command += " " + chosen->get_name();
  }
  std::string message = error.what();
  std::erase(message, kEmptyValue);
  std::string names;
  for (const CLI::App* below : chosen->get_subcommands([](const CLI::App*) { return true; })) {
    names += (names.empty() ? "" : ", ") + below->get_name();
  }
  const std::vector<std::string> words = root->remaining();
  const auto required = static_cast<int>(CLI::ExitCodes::RequiredError);
  if (!names.empty() && words.empty() && error.get_exit_code() == required) {
    return CommandList(chosen, command);
  }
  if (!names.empty() && !words.empty()) {
    message = fmt::format("\"{}\" is not a command of {}; its commands are {}", words.front(),
                          command, names);
  }
  return fmt::format("error: {}\nTry: {} --help\n", message, command);
}

}  // namespace

CLI::Option* Flags::AddValue(const std::string& names, const std::string& placeholder, Take take,
                             const std::string& help) {
  const auto take_all = [take = std::move(take), names](const CLI::results_t& texts) {
    for (std::string text : texts) {
      if (text.ends_with(kEmptyValue)) text.pop_back();
      const Status status = take(text);
      if (!status.ok()) throw CLI::ValidationError(names, std::string(status.message()));
    }
    return true;
  };
  CLI::Option* option = app_->add_option(names, take_all, help);
  option->type_name(placeholder);
  if (!group_.empty()) option->group(group_);
  return option;
}

CLI::Option* Flags::AddText(const std::string& names, Take take,
                            std::function<std::vector<std::string>()> value,
                            const std::string& help) {
  CLI::Option* option = AddValue(names, "TEXT", std::move(take), help);
  texts_->push_back({.command = command_,
                     .name = option->get_name(),
                     .positional = option->get_positional(),
                     .value = std::move(value)});
  return option;
}

void Flags::AddTexts(const std::string& names, Take take,
                     std::function<std::vector<std::string>()> value, const std::string& help) {
  AddText(names, std::move(take), std::move(value), help)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  texts_->back().repeatable = true;
}

template <typename Number, typename Variable>
void Flags::AddNumber(const std::string& names, Variable& value, const std::string& help) {
  const auto parse = [&value](const std::string& text) -> Status {
    if (const auto number = ParseNumber<Number>(text)) {
      value = *number;
      return Status();
    }
    if constexpr (std::is_integral_v<Number>) {
      return InvalidArgument("\"{}\" is not an integer from {} to {}", text,
                             std::numeric_limits<Number>::min(),
                             std::numeric_limits<Number>::max());
    }
    return InvalidArgument("\"{}\" is not a number", text);
  };
  CLI::Option* option = AddValue(names, std::is_integral_v<Number> ? "N" : "X", parse, help);
  if constexpr (std::is_same_v<Number, Variable>) option->default_str(fmt::format("{}", value));
}

void Flags::Add(const std::string& names, bool& value, const std::string& help) {
  CLI::Option* option = app_->add_flag(names, value, help);
  if (!group_.empty()) option->group(group_);
}
void Flags::AddNegated(const std::string& names, bool& value, const std::string& help) {
  const auto take = [&value](int64_t count) { value = count <= 0; };  // "=false" counts -1
  CLI::Option* option = app_->add_flag_function(names, take, help);
  if (!group_.empty()) option->group(group_);
}
void Flags::Add(const std::string& names, int32_t& value, const std::string& help) {
  AddNumber<int32_t>(names, value, help);
}
void Flags::Add(const std::string& names, uint16_t& value, const std::string& help) {
  AddNumber<uint16_t>(names, value, help);
}
void Flags::Add(const std::string& names, float& value, const std::string& help) {
  AddNumber<float>(names, value, help);
}
void Flags::Add(const std::string& names, double& value, const std::string& help) {
  AddNumber<double>(names, value, help);
}
void Flags::Add(const std::string& names, std::optional<int32_t>& value, const std::string& help) {
  AddNumber<int32_t>(names, value, help);
}
void Flags::Add(const std::string& names, std::optional<float>& value, const std::string& help) {
  AddNumber<float>(names, value, help);
}
void Flags::Add(const std::string& names, std::optional<uint64_t>& value, const std::string& help) {
  AddNumber<uint64_t>(names, value, help);
}

CLI::Option* Flags::AddString(const std::string& names, std::string& value,
                              const std::string& help) {
  const auto take = [&value](const std::string& text) {
    value = text;
    return Status();
  };
  CLI::Option* option = AddText(
      names, take, [&value] { return std::vector<std::string>{value}; }, help);
  if (!value.empty()) option->default_str(value);
  return option;
}
void Flags::Add(const std::string& names, std::string& value, const std::string& help) {
  AddString(names, value, help);
}
void Flags::AddRequired(const std::string& names, std::string& value, const std::string& help) {
  AddString(names, value, help)->required();
}
void Flags::Add(const std::string& names, std::optional<std::string>& value,
                const std::string& help) {
  const auto take = [&value](const std::string& text) {
    value = text;
    return Status();
  };
  const auto given = [&value] {
    return value ? std::vector<std::string>{*value} : std::vector<std::string>{};
  };
  AddText(names, take, given, help);
}
void Flags::Add(const std::string& names, std::vector<std::string>& value,
                const std::string& help) {
  const auto take = [&value](const std::string& text) {
    value.push_back(text);
    return Status();
  };
  AddTexts(
      names, take, [&value] { return value; }, help);
}
void Flags::Add(const std::string& names, std::optional<std::vector<std::string>>& value,
                const std::string& help) {
  const auto take = [&value](const std::string& text) {
    if (!value || text == "none") value.emplace();
    if (text != "none") value->push_back(text);
    return Status();
  };
  const auto given = [&value] { return value.value_or(std::vector<std::string>()); };
  AddTexts(names, take, given, help);
}

void Flags::Add(const std::string& names, std::optional<std::vector<int32_t>>& value,
                const std::string& help) {
  const auto parse = [&value](const std::string& text) -> Status {
    ASSIGN_OR_RETURN(value, ParseIntList(text));
    return Status();
  };
  AddValue(names, "N,N,...", parse, help);
}

void Flags::AddParsed(const std::string& names, const std::string& placeholder, Take parse,
                      const std::string& help) {
  AddValue(names, placeholder, std::move(parse), help);
}

void Flags::AddNamed(const std::string& names, std::span<const std::string_view> choices,
                     std::string_view chosen, std::function<bool(const std::string&)> choose,
                     const std::string& help) {
  const auto take = [choices, choose = std::move(choose)](const std::string& text) {
    return choose(text)
               ? Status()
               : InvalidArgument("\"{}\" is not one of {}", text, fmt::join(choices, ", "));
  };
  AddValue(names, "NAME", take, help)->default_str(std::string(chosen));
}

void Flags::AddBytes(const std::string& names, int64_t& value, const std::string& help) {
  const auto parse = [&value](const std::string& text) -> Status {
    ASSIGN_OR_RETURN(value, ParseBytes(text));
    return Status();
  };
  AddValue(names, "BYTES", parse, help);
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
  const auto number = ParseNumber<int64_t>(text);
  if (!number || *number < 0 || *number > (INT64_MAX >> shift)) {
    return InvalidArgument("\"{}\" is not a size such as 4096, 512M or 2GiB", given);
  }
  return *number << shift;
}

Result<std::vector<int32_t>> ParseIntList(std::string_view text) {
  std::vector<int32_t> list;
  if (text.empty()) return list;
  if (text.ends_with(',')) text.remove_suffix(1);
  for (std::string_view piece : Split(text, ',')) {
    piece = Trim(piece);
    const auto number = ParseNumber<int32_t>(piece);
    if (!number) return InvalidArgument("\"{}\" is not a number", piece);
    list.push_back(*number);
  }
  return list;
}

Status FlushOutput() {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return Status();
  // errno of an earlier failure is lost.
  return Unavailable("stdout: {}: the output is incomplete",
                     flushed ? "writing failed" : std::strerror(errno));
}

struct CommandLine::Impl {
  CLI::App app;
  std::vector<TextOption> texts;
  std::function<int()> chosen;
};

CommandLine::CommandLine(const std::string& name, const std::string& description,
                         const std::string& version)
    : impl_(std::make_unique<Impl>()) {
  CLI::App& app = impl_->app;
  app.name(name);
  app.description(description);
  app.set_version_flag("--version", version);
  app.set_help_all_flag("--help-all", "Print the help of every command");
  app.require_subcommand(1);
  app.set_config("--config", "",
                 "Read options from a file: a line [run], then lines such as temperature = 0.5. A "
                 "value is taken literally unless it is a JSON string")
      ->group("Options");
  app.config_formatter(std::make_shared<ConfigReader>(&app));
  app.fallthrough();
  app.failure_message(&FailureMessage);
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
  return {command, name, impl_->texts};
}

const std::vector<TextOption>& CommandLine::text_options() const { return impl_->texts; }

int CommandLine::Parse(int argc, char** argv, std::function<int()>* chosen) {
  *chosen = nullptr;
  impl_->chosen = nullptr;
  try {
    impl_->app.parse(Arguments(argc, argv));
  } catch (const CLI::ParseError& error) {
    return impl_->app.exit(error) == 0 ? 0 : kUsageError;
  }
  *chosen = impl_->chosen;
  return kUsageError;
}

int CommandLine::Run(int argc, char** argv) {
  std::function<int()> chosen;
  const int code = Parse(argc, argv, &chosen);
  if (const int failed = chosen ? chosen() : code; failed != 0) return failed;
  const Status written = FlushOutput();
  if (written.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", std::string(written.message()).c_str());
  return kOutputError;
}

}  // namespace tokamak::cli
