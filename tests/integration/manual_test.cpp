// Manual pages and completion agree with --help: every command, every option.
#include "run_program.hpp"

#include <regex>

namespace tenon::integration::manual_test {
namespace {

std::string output(const std::vector<std::string>& arguments) {
  const Ended ended = Scratch().run(arguments);
  EXPECT_EQ(ended.status, 0) << ended.err;
  return ended.out;
}

std::vector<std::string> matches(const std::string& text, const char* pattern) {
  std::vector<std::string> found;
  const std::regex regex(pattern);
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at)
    found.push_back((*at)[1]);
  return found;
}

std::vector<std::string> command_names() {
  return matches(output({"--help"}), "\\n  ([a-z-]+) ");
}

TEST(Manual, HasAPageForEveryCommandWithEveryOption) {
  const Scratch scratch;
  ASSERT_EQ(scratch.run({"manual", "--out", (scratch / "share").string()}).status, 0);
  const std::string overview = read_file(scratch / "share/man/man1/tenon.1");
  const std::vector<std::string> names = command_names();
  ASSERT_GE(names.size(), 8u);
  for (const std::string& name : names) {
    EXPECT_THAT(overview, ::testing::HasSubstr("tenon\\-" + name + " (1)"));
    const std::string page = read_file(scratch / ("share/man/man1/tenon-" + name + ".1"));
    EXPECT_THAT(page, ::testing::StartsWith(".TH TENON\\-"));
    EXPECT_EQ(page, output({"manual", name}));
    for (const std::string& option : matches(output({name, "--help"}), "\n  --([a-z-]+)")) {
      EXPECT_THAT(page, ::testing::HasSubstr("\\fB\\-\\-" + replaced(option, "-", "\\-") + "\\fR")) << name;
    }
  }
  for (const char* file : {"bash-completion/completions/tenon", "zsh/vendor-completions/_tenon",
                           "fish/vendor_completions.d/tenon.fish"})
    EXPECT_FALSE(read_file(scratch / ("share/" + std::string(file))).empty()) << file;
}

TEST(Completion, BashCompletesCommandsAndOptions) {
  const Scratch scratch;
  write_file(scratch / "completion", output({"completion", "bash"}));
  const auto complete = [&](const std::string& words, int at) {
    const std::string script = "cd " + scratch.folder().string() + "; source ./completion; COMP_WORDS=(" +
                               words + "); COMP_CWORD=" + std::to_string(at) +
                               "; _tenon; echo \"${COMPREPLY[*]}\" >reply";
    EXPECT_EQ(std::system(("bash -ec '" + script + "'").c_str()), 0);
    return read_file(scratch / "reply");
  };
  EXPECT_EQ(complete("tenon tr", 1), "train transform\n");
  EXPECT_EQ(complete("tenon train --re", 2), "--resume\n");
  EXPECT_EQ(complete("tenon train run.to", 2), "run.toml\n");
  for (const std::string& name : command_names()) {
    std::string longer;  // of "export" export-study, too
    for (const std::string& other : command_names())
      if (other.starts_with(name)) longer += (longer.empty() ? "" : " ") + other;
    EXPECT_EQ(complete("tenon " + name, 1), longer + "\n");
  }
}

TEST(Completion, AnUnknownShellIsRefused) {
  const Ended ended = Scratch().run({"completion", "tcsh"});
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.err,
            "tenon: tenon completion: expected bash, zsh or fish, found 'tcsh'; in bash: source <(tenon "
            "completion bash)\n");
}

}  // namespace
}  // namespace tenon::integration::manual_test
