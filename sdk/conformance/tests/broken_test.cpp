// A kit that cannot fail proves nothing: every component of tests/broken is wrong in one way and must be
// caught by the check that broken/<kind>.txt names, and every check of that kind must have caught something.
//
//   # component or file    check                     part of the text, to the end of the line
//   layer.ignores_input    layer.uses_its_inputs     ...
//   any.so                 plugin.begins_and_ends    ...
#include "tenon_output.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

/// The kind under test: TENON_BROKEN_KIND, which every entry of ctest sets.
const std::string& kind() {
  static const std::string name = [] {
    const char* const word = std::getenv("TENON_BROKEN_KIND");
    return std::string(word == nullptr ? "any" : word);
  }();
  return name;
}

struct Line {
  std::string component, check, text;
};

void PrintTo(const Line& line, std::ostream* out) {
  *out << line.component << " " << line.check;
}

std::vector<Line> lines_of(const std::string& kind) {
  std::ifstream in(fmt::format("{}/sdk/conformance/tests/broken/{}.txt", TENON_SOURCE_DIR, kind));
  std::vector<Line> lines;
  for (std::string row; std::getline(in, row);) {
    if (row.empty() || row[0] == '#') continue;
    std::istringstream words(row);
    Line line;
    words >> line.component >> line.check >> std::ws;
    std::getline(words, line.text);
    lines.push_back(line);
  }
  return lines;
}

/// `plugin`: the name after "broken_".
std::string command(const std::string& plugin, const std::string& words) {
  const std::string file = fmt::format("{}/sdk/conformance/broken_{}.so", TENON_BINARY_DIR, plugin);
  const std::string cases = fmt::format("{}/sdk/conformance/tests/broken/{}.toml", TENON_SOURCE_DIR, plugin);
  const bool has_cases = std::ifstream(cases).good();
  return fmt::format("{} conformance {} {} --json {}", TENON_PROGRAM, file,
                     has_cases ? "--cases " + cases : "", words);
}

class Broken : public testing::TestWithParam<Line> {};

TEST_P(Broken, IsCaught) {
  const Line& line = GetParam();
  const bool whole_file = line.component.ends_with(".so");
  const std::string words = "--filter " + line.check + (whole_file ? "" : " --component " + line.component);
  const std::string plugin = whole_file ? line.component.substr(0, line.component.size() - 3) : kind();
  const Output output = output_of(command(plugin, words));
  ASSERT_EQ(output.status, 3) << output.text;
  const nlohmann::json report = nlohmann::json::parse(output.text);
  ASSERT_GE(report["checks"].size(), 1u);
  EXPECT_EQ(report["checks"][0]["outcome"], "failed");
  EXPECT_NE(report["checks"][0]["text"].get<std::string>().find(line.text), std::string::npos)
      << report["checks"][0]["text"].get<std::string>() << "\nexpected in it: " << line.text;
}

INSTANTIATE_TEST_SUITE_P(All, Broken, testing::ValuesIn(lines_of(kind())), [](const auto& info) {
  std::string name = info.param.component + "_" + info.param.check;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
});

TEST(BrokenTable, NamesEveryCheckOfTheKind) {
  const Output output = output_of(command(kind(), "--list"));
  ASSERT_EQ(output.status, 0) << output.text;
  std::set<std::string> caught, wanted;
  for (const Line& line : lines_of(kind())) caught.insert(line.check);
  const nlohmann::json report = nlohmann::json::parse(output.text);
  for (const auto& check : report["checks"]) {
    const std::string name = check["check"];
    const bool of_kind = name.starts_with(kind() + ".");
    const bool general =
        name.starts_with("plugin.") || name.starts_with("component.") || name.starts_with("run.");
    if (kind() == "any" ? general : of_kind) wanted.insert(name);
  }
  EXPECT_FALSE(wanted.empty());
  for (const std::string& name : wanted)
    EXPECT_TRUE(caught.count(name) > 0) << "nothing shows that " << name << " can fail";
}

}  // namespace
