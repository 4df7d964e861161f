// Inspecting plugins in a child: a crash, exit or hang there is a line of text here.
#include "support.hpp"

#include "plugin/probe.hpp"

namespace tenon::plugin {
namespace {

using std::chrono::milliseconds;

TEST(Probe, DescribesAGoodPlugin) {
  ::unsetenv("TENON_TEST_GOOD");
  const ProbeResult result = probe_plugin({.file = fixture::path("good/good")});
  ASSERT_TRUE(result.ok) << result.reason;
  EXPECT_EQ(std::getenv("TENON_TEST_GOOD"), nullptr);  // nothing of it ran here
  EXPECT_EQ(result.description.id, "acme.good");
  EXPECT_EQ(result.description.vendor, "Acme \"Tools\"");
  ASSERT_EQ(result.description.components.size(), 2u);
  const ComponentDescription& counter = result.description.components[0];
  EXPECT_EQ(counter.aliases, std::vector<std::string>{"tally"});
  EXPECT_EQ(counter.requirements, std::vector<std::string>{"cuda>=12"});
  ASSERT_EQ(counter.options.size(), 8u);
  EXPECT_EQ(counter.options[0].old_names, std::vector<std::string>{"begin"});
  EXPECT_EQ(counter.options[1].unit, "1/step");
  EXPECT_EQ(counter.options[2].default_toml, "\"up\"");
  EXPECT_FALSE(counter.options[6].default_toml.has_value());
  EXPECT_EQ(counter.options[7].component_kind, "toy/1");
}

TEST(Probe, SaysHowABadOneEnded) {
  struct Case {
    const char* file;
    milliseconds limit;
    const char* reason;
  };
  const Case cases[] = {
      {"crashes_in_static", milliseconds(10000),
       "Cannot load '{file}': loading it ended the process with signal 11 (Segmentation fault). It ran in a "
       "child process only. Its last words: about to use a device that is not there"},
      {"exits_in_init", milliseconds(10000),
       "Cannot load '{file}': its init ended the process with exit status 9. It ran in a child process "
       "only."},
      {"hangs_in_init", milliseconds(300),
       "Cannot load '{file}': its init did not end within 0.3 s, it was killed. It ran in a child process "
       "only."},
      {"throws_in_init", milliseconds(10000),
       "Cannot load '{file}': its init failed: plugin bad.throws_in_init: no device of mine here"},
      {"no_section", milliseconds(10000),
       "Cannot load '{file}': it has no section .tenon_abi, so it is not a Tenon plugin (or was built "
       "without "
       "TENON_PLUGIN). No plugin code was run."},
  };
  for (const Case& c : cases) {
    const auto file = fixture::path(std::string("bad/") + c.file);
    const ProbeResult result = probe_plugin({.file = file, .time_limit = c.limit});
    EXPECT_FALSE(result.ok);
    EXPECT_EQ(result.reason, fixture::filled(c.reason, file));
  }
}

TEST(Probe, AbsentFileAndAbsentProgram) {
  EXPECT_EQ(probe_plugin({.file = "/no/such.so"}).reason,
            "Cannot load '/no/such.so': No such file or directory.");
  EXPECT_EQ(fixture::error_text(
                [] { probe_plugin({.file = fixture::path("good/good"), .program = "/no/such/program"}); },
                ErrorKind::kRun),
            "cannot start '/no/such/program': No such file or directory");
}

TEST(Probe, OtherProgramsAreNotBelieved) {
  const auto file = fixture::path("good/good");
  EXPECT_EQ(
      probe_plugin({.file = file, .program = "/bin/true"}).reason,
      fixture::filled(
          "Cannot load '{file}': starting the probe ended the process with exit status 0. It ran in a child "
          "process only.",
          file));
}

}  // namespace
}  // namespace tenon::plugin
