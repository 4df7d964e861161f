// Tests a plugin built with a sanitizer in a program built without: its errors are found, and correct
// components cause no report.
#include "tenon_output.hpp"

#include <gtest/gtest.h>

#include <string>

namespace {

/// SANITIZER is "thread" or "address".
Output conformance(const std::string& words) {
  return output_of(fmt::format("{} conformance {}/sdk/conformance/sanitized_{}.so --json {}", TENON_PROGRAM,
                               TENON_BINARY_DIR, SANITIZER, words));
}

/// Texts of the checks that failed, one a line.
std::string failures(const Output& output) {
  std::string text;
  const nlohmann::json report = nlohmann::json::parse(output.text);
  for (const auto& check : report["checks"]) {
    if (check["outcome"] == "failed")
      text += check["check"].get<std::string>() + ": " + check["text"].get<std::string>() + "\n";
  }
  return text;
}

const bool kThread = SANITIZER == std::string("thread");

TEST(Sanitized, WhatIsRightPasses) {
  for (const char* words :
       {"--component optimizer.clean --filter 'optimizer.*' --filter 'component.*' --filter run.completes",
        "--component sync.looks --filter 'run.*' --filter sync.returns_the_mean --filter "
        "sync.quiesces_quietly"}) {
    const Output output = conformance(words);
    EXPECT_EQ(output.status, 0) << failures(output);
  }
  // Neither sanitizer reports the error meant for the other one.
  const Output other = conformance(std::string("--filter run.completes --component optimizer.") +
                                   (kThread ? "overflows" : "races"));
  EXPECT_EQ(other.status, 0) << failures(other);
}

TEST(Sanitized, ItsMistakeIsCaught) {
  const Output output = conformance(std::string("--filter run.completes --component optimizer.") +
                                    (kThread ? "races" : "overflows"));
  EXPECT_EQ(output.status, 3) << output.text;
  const std::string text = failures(output);
  EXPECT_NE(text.find(kThread ? "ThreadSanitizer: data race" : "AddressSanitizer: heap-buffer-overflow"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("sanitized.cpp:"), std::string::npos) << "the place is not named: " << text;
}

}  // namespace
