#include "plugin/abi_tag.hpp"

#include <gtest/gtest.h>

#include <random>

namespace tenon::plugin {
namespace {

AbiTag sample() {
  AbiTag tag;
  tag.epoch = "2";
  tag.arch = "x86_64";
  tag.stdlib = "libstdc++";
  tag.string_abi = "cxx11";
  tag.debug_containers = "off";
  tag.rtti = tag.exceptions = "on";
  tag.compiler = "gcc-11";
  tag.sdk_version = "0.2.4";
  return tag;
}

AbiTag sample_host() {
  AbiTag host = sample();
  host.epoch = "3";
  host.compiler = "gcc-12";
  host.sdk_version = "0.3.1";
  return host;
}

const std::string kSound =
    "tenon-abi 1\nepoch 0\narch x86_64\nstdlib libstdc++\nstring-abi cxx11\ndebug-containers off\nrtti on\n"
    "exceptions on\ncompiler gcc-12.2.0\nsdk-version 0.1.0\nlanguage c++20\nplugin acme.lion 1.0.0\n"
    "component optimizer/1 lion\nalias optimizer/1 sign_momentum lion\ncomponent schedule/1 sawtooth\nend\n";

TEST(AbiTag, Parses) {
  const TagResult result = parse_abi_tag(kSound + std::string("\0rubbish after it", 17));
  ASSERT_EQ(result.problem, "");
  EXPECT_EQ(result.tag.text, kSound);
  EXPECT_EQ(result.tag.plugin_id, "acme.lion");
  EXPECT_EQ(result.tag.plugin_version, "1.0.0");
  EXPECT_EQ(result.tag.offers,
            (std::vector<Offer>{{"optimizer/1", "lion", {"sign_momentum"}}, {"schedule/1", "sawtooth", {}}}));
}

TEST(AbiTag, UnknownKeysAreForLaterSdks) {
  std::string text = kSound;
  text.insert(text.find("compiler"), "colour blue green\n");
  EXPECT_EQ(parse_abi_tag(text).problem, "");
}

TEST(AbiTag, Problems) {
  struct Case {
    std::string from, to, problem;
  };
  const Case cases[] = {
      {"tenon-abi 1", "tenon-abi 2", "its format is 2, this program reads format 1"},
      {"tenon-abi 1", "hello 1", "it does not begin with 'tenon-abi 1'"},
      {"epoch 0\n", "", "it has no line 'epoch'"},
      {"plugin acme.lion 1.0.0\n", "", "it has no line 'plugin'"},
      {"end\n", "", "it breaks off before the line 'end'"},
      {"end\n", "end", "it breaks off before the line 'end'"},
      {"epoch 0", "epoch 0\nepoch 1", "line 3 ('epoch') is malformed or repeated"},
      {"epoch 0", "epoch", "line 2 ('epoch') is malformed or repeated"},
      {"epoch 0", "epoch  0", "line 2 is not a list of words"},
      {"epoch 0", "epoch \x01", "line 2 is not a list of words"},
      {"component optimizer/1 lion\n", "", "line 13 ('alias') is malformed or repeated"},
      {"component optimizer/1 lion\n", "component lion\n", "line 13 ('component') is malformed or repeated"},
  };
  for (const Case& c : cases) {
    std::string text = kSound;
    text.replace(text.find(c.from), c.from.size(), c.to);
    EXPECT_EQ(parse_abi_tag(text).problem, c.problem);
  }
}

TEST(AbiTag, TruncationsAndMutationsDoNoHarm) {
  for (std::size_t length = 0; length < kSound.size(); ++length) {
    EXPECT_NE(parse_abi_tag(std::string_view(kSound).substr(0, length)).problem, "") << length;
  }
  std::mt19937_64 random(2);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = kSound;
    for (int change = 0; change < 3; ++change) text[random() % text.size()] = static_cast<char>(random());
    const TagResult result = parse_abi_tag(text);
    EXPECT_LE(result.tag.text.size(), text.size());
    refused += !result.problem.empty();
  }
  EXPECT_GT(refused, 10000);
}

TEST(AbiTag, HostMatchesItself) {
  const AbiTag& host = host_abi_tag();
  EXPECT_EQ(host.plugin_id, "tenon.core");
  EXPECT_EQ(abi_problem(host, host, "x.so"), "");
}

TEST(AbiTag, EpochDiffers) {
  EXPECT_EQ(
      abi_problem(sample(), sample_host(), "lion.so"),
      "Cannot load 'lion.so': built for plugin ABI 2, this program has ABI 3 (plugin SDK 0.2.4 gcc-11; "
      "host SDK "
      "0.3.1 gcc-12). First difference: abi 2 != 3. Rebuild against SDK 0.3.x, see docs/plugins/abi.md. No "
      "plugin code was "
      "run.");
}

TEST(AbiTag, EveryOtherDifferenceIsNamedWithItsFix) {
  struct Case {
    std::string AbiTag::*field;
    std::string value, expected;
  };
  const Case cases[] = {
      {&AbiTag::arch, "aarch64",
       "built for arch aarch64, this program has arch x86_64 (plugin SDK 0.3.1 gcc-12; host SDK 0.3.1 "
       "gcc-12). First "
       "difference: arch aarch64 != x86_64. Build it for x86_64"},
      {&AbiTag::stdlib, "libc++-1",
       "built for stdlib libc++-1, this program has stdlib libstdc++ (plugin SDK 0.3.1 gcc-12; host SDK "
       "0.3.1 gcc-12). "
       "First difference: stdlib libc++-1 != libstdc++. Rebuild against libstdc++"},
      {&AbiTag::string_abi, "old",
       "built for string-abi old, this program has string-abi cxx11 (plugin SDK 0.3.1 gcc-12; host SDK 0.3.1 "
       "gcc-12). "
       "First difference: string-abi old != cxx11. Rebuild without setting _GLIBCXX_USE_CXX11_ABI"},
      {&AbiTag::debug_containers, "on",
       "built for debug-containers on, this program has debug-containers off (plugin SDK 0.3.1 gcc-12; host "
       "SDK 0.3.1 "
       "gcc-12). First difference: debug-containers on != off. Rebuild with _GLIBCXX_DEBUG off"},
      {&AbiTag::rtti, "off",
       "built for rtti off, this program has rtti on (plugin SDK 0.3.1 gcc-12; host SDK 0.3.1 gcc-12). First "
       "difference: rtti off != on. Rebuild with -frtti"},
      {&AbiTag::exceptions, "off",
       "built for exceptions off, this program has exceptions on (plugin SDK 0.3.1 gcc-12; host SDK 0.3.1 "
       "gcc-12). First "
       "difference: exceptions off != on. Rebuild with -fexceptions"},
  };
  for (const Case& c : cases) {
    AbiTag tag = sample_host();
    tag.*c.field = c.value;
    EXPECT_EQ(abi_problem(tag, sample_host(), "lion.so"),
              "Cannot load 'lion.so': " + c.expected + ", see docs/plugins/abi.md. No plugin code was run.");
  }
}

TEST(AbiTag, WhatIsOnlyReportedMayDiffer) {
  AbiTag tag = sample_host();
  tag.compiler = "clang-14.0.6";
  tag.sdk_version = "9.9.9";
  tag.language = "c++23";
  EXPECT_EQ(abi_problem(tag, sample_host(), "lion.so"), "");
}

}  // namespace
}  // namespace tenon::plugin
