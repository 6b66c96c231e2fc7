// Command-line flags. Only flags.cc includes CLI11, which takes seconds to compile.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/option_names.h"
#include "tokamak/status.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own
class App;
class Option;
}  // namespace CLI

namespace tokamak::cli {

// An option that takes any text, for a test that tries values on all of them.
struct TextOption {
  std::string command;  // "bench latency"
  std::string name;     // "--stop", or "model" for a positional argument
  bool positional = false;
  bool repeatable = false;
  std::function<std::vector<std::string>()> value;  // returns what the command would get
};

// Declares the flags of one command. Names are in CLI11's form: "-p,--prompt" for a flag, "model"
// for a positional. The variables hold the defaults, must live as long as the program, and are set
// when the command runs. Values are taken literally: brackets, braces, commas and quotes mean
// nothing until the variable's own type reads them.
class Flags {
 public:
  // Adds each option that takes any text to `texts`.
  Flags(CLI::App* app, std::string command, std::vector<TextOption>& texts)
      : app_(app), command_(std::move(command)), texts_(&texts) {}

  void Add(const std::string& names, bool& value, const std::string& help);  // takes no argument
  void AddNegated(const std::string& names, bool& value, const std::string& help);  // sets false
  void Add(const std::string& names, int32_t& value, const std::string& help);
  void Add(const std::string& names, uint16_t& value, const std::string& help);
  void Add(const std::string& names, float& value, const std::string& help);
  void Add(const std::string& names, double& value, const std::string& help);
  void Add(const std::string& names, std::string& value, const std::string& help);
  void AddRequired(const std::string& names, std::string& value, const std::string& help);
  void Add(const std::string& names, std::optional<int32_t>& value, const std::string& help);
  void Add(const std::string& names, std::optional<float>& value, const std::string& help);
  void Add(const std::string& names, std::optional<uint64_t>& value, const std::string& help);
  void Add(const std::string& names, std::optional<std::string>& value, const std::string& help);
  // May be given several times, each time with one value.
  void Add(const std::string& names, std::vector<std::string>& value, const std::string& help);
  // The same; "none" empties the list.
  void Add(const std::string& names, std::optional<std::vector<std::string>>& value,
           const std::string& help);
  // "1,2,3"; an empty string is an empty list.
  void Add(const std::string& names, std::optional<std::vector<int32_t>>& value,
           const std::string& help);
  // Takes any text that `parse` accepts; shows its error otherwise.
  void AddParsed(const std::string& names, const std::string& placeholder,
                 std::function<Status(const std::string&)> parse, const std::string& help);
  // One of the names in kOptionNames.
  template <NamedOption Option>
  void Add(const std::string& names, Option& value, const std::string& help) {
    const auto choose = [&value](const std::string& name) {
      const auto chosen = ParseOption<Option>(name);
      value = chosen.value_or(value);
      return chosen.has_value();
    };
    AddNamed(names, kOptionNames<Option>, Name(value), choose, help);
  }
  // "4096", "512M", "2GiB".
  void AddBytes(const std::string& names, int64_t& value, const std::string& help);
  // Sets the heading in --help for the following flags.
  void Group(const std::string& title) { group_ = title; }

 private:
  using Take = std::function<Status(const std::string&)>;
  // All values come through here: `take` gets each exactly as given.
  CLI::Option* AddValue(const std::string& names, const std::string& placeholder, Take take,
                        const std::string& help);
  CLI::Option* AddText(const std::string& names, Take take,
                       std::function<std::vector<std::string>()> value, const std::string& help);
  void AddTexts(const std::string& names, Take take,
                std::function<std::vector<std::string>()> value, const std::string& help);
  CLI::Option* AddString(const std::string& names, std::string& value, const std::string& help);
  void AddNamed(const std::string& names, std::span<const std::string_view> choices,
                std::string_view chosen, std::function<bool(const std::string&)> choose,
                const std::string& help);
  template <typename Number, typename Variable>
  void AddNumber(const std::string& names, Variable& value, const std::string& help);

  CLI::App* app_;
  std::string command_;
  std::vector<TextOption>* texts_;
  std::string group_;
};

// Parses "4096", "512M", "2GiB" (powers of 1024) to bytes; kInvalidArgument otherwise.
Result<int64_t> ParseBytes(std::string_view text);
// Parses "1,2,3"; kInvalidArgument names the piece that is not a number.
Result<std::vector<int32_t>> ParseIntList(std::string_view text);

// Flushes stdout. kUnavailable if not all output could be written.
Status FlushOutput();

// A program of commands. Its exit code is that of the command; 1 if the command succeeded but
// stdout could not be written; 2 for wrong flags.
class CommandLine {
 public:
  CommandLine(const std::string& name, const std::string& description, const std::string& version);
  ~CommandLine();

  // Declares a command; "bench latency" is the command `latency` inside `bench`, which is created
  // if needed. `examples` ends its --help. `run` runs the chosen command and returns the exit code.
  Flags Command(const std::string& name, const std::string& summary, const std::string& examples,
                std::function<int()> run);
  // Reads the arguments and the --config file, and runs the command.
  int Run(int argc, char** argv);
  // The first half of Run. *chosen runs the command; if it is empty, the exit code is final.
  int Parse(int argc, char** argv, std::function<int()>* chosen);

  // All options of all commands that take any text.
  const std::vector<TextOption>& text_options() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tokamak::cli
