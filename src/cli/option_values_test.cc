// Each text option of each command gets exactly what the user gave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/commands.h"
#include "cli/config_file.h"

namespace tokamak::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Texts with a special meaning in command-line libraries, their configuration files or shells.
const std::vector<std::string>& HostileValues() {
  static const auto& values = *new std::vector<std::string>{
      "",
      "[b]",
      "[a,b]",
      "[[a],[b]]",
      "[]",
      "{}",
      "{a}",
      "%%",
      "--",
      "++",
      "-",
      "-x",
      "--x",
      "--json",
      "--stop=",
      "a=b",
      "=",
      "=x",
      "@file",
      "true",
      "null",
      "run",
      "bench",
      "\"",
      "\"quoted\"",
      "'quoted'",
      "\"open",
      "`x`",
      "\\",
      "\\n",
      "\\x41",
      "B\"(x)\"",
      "a,b",
      "a b",
      " a ",
      "\t",
      "a\nb",
      "\n",
      "\r\n",
      "#a",
      "a # b",
      ";a",
      "$HOME",
      "${HOME}",
      "~",
      "*",
      "0x10",
      "1e3",
      "007",
      "1'000",
      "<think>",
      "\x1b[31m",
      "Größe, 大きさ",
      "👩‍👩‍👧",
      "\u00a0",
      "\u2028",
      "[section]",
      "a;b",
      "a|b",
      "!",
  };
  return values;
}

struct Program {
  CommandLine line{"tokamak", "A test.", "1"};

  Program() { AddCommands(line); }

  const TextOption& Find(const TextOption& option) const {
    for (const TextOption& mine : line.text_options()) {
      if (mine.command == option.command && mine.name == option.name) return mine;
    }
    throw std::logic_error(option.name);
  }
  // Parses a command and its arguments; true if the command would run.
  bool Parse(const std::string& command, const std::vector<std::string>& rest) {
    std::vector<std::string> args = {"tokamak"};
    std::istringstream words(command);
    for (std::string word; words >> word;) args.push_back(word);
    args.insert(args.end(), rest.begin(), rest.end());
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    std::function<int()> chosen;
    line.Parse(static_cast<int>(argv.size()), argv.data(), &chosen);
    return chosen != nullptr;
  }
};

// Arguments that the command requires, except for `option`.
std::vector<std::string> Required(const TextOption& option) {
  if (option.command == "bench serve" && option.name != "--url") return {"--url", "http://x"};
  if (option.command == "replay" && option.name != "file") return {"file.rec"};
  return {};
}

// Positional arguments before `option`.
std::vector<std::string> Before(const Program& program, const TextOption& option) {
  std::vector<std::string> before;
  for (const TextOption& other : program.line.text_options()) {
    if (!other.positional || other.command != option.command) continue;
    if (other.name == option.name) break;
    before.push_back("before");
  }
  return before;
}

std::string Name(const TextOption& option) { return option.command + " " + option.name; }

TEST(OptionValues, TheProgramHasItsMainOptions) {
  const Program program;
  std::set<std::string> names, commands;
  for (const TextOption& option : program.line.text_options()) {
    names.insert(Name(option));
    commands.insert(option.command);
  }
  EXPECT_GT(names.size(), 60u);
  EXPECT_GE(commands.size(), 11u);
  for (const char* known : {"run --prompt", "run --stop", "run model", "serve --host",
                            "embed --string", "bench serve --url", "replay file"}) {
    EXPECT_TRUE(names.contains(known)) << known;
  }
}

// Sets the option with `args` and expects the command to get exactly that value.
void ExpectTaken(Program& program, const TextOption& option, const std::vector<std::string>& args,
                 const std::string& value) {
  const TextOption& mine = program.Find(option);
  const size_t before = option.repeatable ? mine.value().size() : 0;  // from earlier command lines
  ASSERT_TRUE(program.Parse(option.command, args)) << Name(option) << " " << value;
  std::vector<std::string> given = mine.value();
  given.erase(given.begin(), given.begin() + static_cast<ptrdiff_t>(before));
  EXPECT_THAT(given, ElementsAre(value)) << Name(option);
}

TEST(OptionValues, TheCommandLineTakesEveryTextLiterally) {
  const Program declared;
  for (const TextOption& option : declared.line.text_options()) {
    Program program;
    for (const std::string& value : HostileValues()) {
      std::vector<std::string> args = Required(option);
      if (option.positional) {
        for (const std::string& other : Before(program, option)) args.push_back(other);
        args.emplace_back("--");
        args.push_back(value);
      } else {
        args.insert(args.end(), {option.name, value});
      }
      ExpectTaken(program, option, args, value);
    }
  }
}

TEST(OptionValues, AnEqualsSignGivesAnyTextEvenAnEmptyOne) {
  const Program declared;
  for (const TextOption& option : declared.line.text_options()) {
    if (option.positional) continue;
    Program program;
    for (const std::string& value : HostileValues()) {
      std::vector<std::string> args = Required(option);
      args.push_back(option.name + "=" + value);
      ExpectTaken(program, option, args, value);
    }
  }
}

TEST(OptionValues, OnlyRepeatableOnesRepeatAndNoneTakesTwo) {
  const Program declared;
  for (const TextOption& option : declared.line.text_options()) {
    if (option.positional) continue;
    Program twice;
    std::vector<std::string> args = Required(option);
    args.insert(args.end(), {option.name, "[a,b]", option.name, "c"});
    EXPECT_EQ(twice.Parse(option.command, args), option.repeatable) << Name(option);
    if (option.repeatable) {
      EXPECT_THAT(twice.Find(option).value(), ElementsAre("[a,b]", "c")) << Name(option);
    }
    Program followed;  // what follows a value belongs to the command
    args = Required(option);
    args.insert(args.end(), {option.name, "a", "b"});
    if (option.command == "replay" || option.command == "bench serve") {
      EXPECT_FALSE(followed.Parse(option.command, args)) << Name(option);
    } else {
      EXPECT_TRUE(followed.Parse(option.command, args)) << Name(option);
      EXPECT_THAT(followed.Find(option).value(), ElementsAre("a")) << Name(option);
    }
  }
}

class ConfigFileTest : public ::testing::Test {
 protected:
  ~ConfigFileTest() override { std::remove(path_.c_str()); }
  void Write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }

  const std::string path_ = ::testing::TempDir() + "/option_values.ini";
};

std::string OptionName(const TextOption& option) {
  return option.positional ? option.name : option.name.substr(2);
}

// Whether a config file takes a value literally without quotes: it has no line end and no
// surrounding blanks, and does not begin with a double quote.
bool Plain(const std::string& value) {
  return value.find_first_of("\r\n") == std::string::npos && !value.starts_with('"') &&
         (value.empty() || (!std::isblank(value.front()) && !std::isblank(value.back())));
}

TEST_F(ConfigFileTest, GivesEveryOptionEveryTextQuotedAndPlain) {
  const Program declared;
  for (const TextOption& option : declared.line.text_options()) {
    Program program;
    for (const std::string& value : HostileValues()) {
      for (const bool quoted : {true, false}) {
        if (!quoted && !Plain(value)) continue;
        Write("# a comment\n[" + option.command + "]\n " + OptionName(option) + " = " +
              (quoted ? nlohmann::json(value).dump() : value) + " \n");
        std::vector<std::string> args = Required(option);
        args.insert(args.end(), {"--config", path_});
        ExpectTaken(program, option, args, value);
      }
    }
  }
}

TEST_F(ConfigFileTest, RepeatsAndSwitchesAndGivesWayToTheCommandLine) {
  Write(
      "[run]\nstop = [a,b]\nstop = c\njson\nsystem = S\n[bench.latency]\ntrace = t\n"
      "[serve]\nhost = other\n");
  Program program;
  EXPECT_TRUE(program.Parse("run", {"--config", path_, "--system", "mine"}));
  const auto value = [&program](const std::string& command, const std::string& name) {
    return program.Find({.command = command, .name = name, .value = {}}).value();
  };
  EXPECT_THAT(value("run", "--stop"), ElementsAre("[a,b]", "c"));
  EXPECT_THAT(value("run", "--system"), ElementsAre("mine"));
  EXPECT_THAT(value("bench latency", "--trace"), ElementsAre("t"));
}

TEST_F(ConfigFileTest, RunsNoCommandThatTheCommandLineDoesNotName) {
  Write("[run]\ntemperature = 0\n");
  Program program;
  EXPECT_FALSE(program.Parse("", {"--config", path_}));
}

TEST_F(ConfigFileTest, ErrorsNameTheLine) {
  for (const auto& [text, error] : std::vector<std::pair<std::string, std::string>>{
           {"[run]\nsystem = \"open\n", "line 2: a value that begins with a double quote"},
           {"[run]\nsystem = \"a\" b\n", "line 2: a value that begins with a double quote"},
           {"[run]\nsystem = \"a\\u0000b\"\n", "line 2: a value must not contain \\u0000"},
           {"[run]\n\nnonsense = 1\n", "line 3: run has no option \"nonsense\""},
           {"[rum]\nseed = 1\n", "line 2: there is no command \"rum\""},
           {"seed = 1\n", "line 1: \"seed\" comes before the first section"},
           {"[run]\ntop-k = 5 # of them\n", "\"5 # of them\" is not an integer"},
           {"[run]\nsystem = a\nsystem = b\n", "--system"}}) {
    Write(text);
    Program program;
    ::testing::internal::CaptureStderr();
    EXPECT_FALSE(program.Parse("run", {"--config", path_})) << text;
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(error));
  }
}

TEST(ConfigFile, ReadsWhatItsHeaderShows) {
  const auto entries =
      ParseConfig("\xEF\xBB\xBF# c\r\n; d\r\n[bench latency]\r\nbatch = 1,2\r\njson\r\nx=\r\n");
  ASSERT_TRUE(entries.ok());
  ASSERT_EQ(entries->size(), 3u);
  EXPECT_THAT((*entries)[0].section, ElementsAre("bench", "latency"));
  EXPECT_EQ((*entries)[0].line, 4);
  EXPECT_EQ((*entries)[0].value, "1,2");
  EXPECT_EQ((*entries)[1].value, "true");
  EXPECT_EQ((*entries)[2].value, "");
}

}  // namespace
}  // namespace tokamak::cli
