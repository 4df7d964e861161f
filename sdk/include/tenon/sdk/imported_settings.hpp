// Settings of another program's model (config.json) for authors of importers: values with their types and
// ranges, and refusals that name key, value and what is supported.
#pragma once

#include <tenon/config.hpp>
#include <tenon/error.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

TENON_ABI_BEGIN

/// A view of a table, which outlives it. Every function throws Error(kConfig) where a value is not as
/// expected.
class ImportedSettings {
 public:
  static constexpr std::int64_t kMost = 2147483647;

  /// `importer` for messages: "importer decoder". `prefix`: of keys of an inner table, "rope_parameters.".
  ImportedSettings(std::string importer, const Value& table, std::string prefix = "")
      : importer_(std::move(importer)), prefix_(std::move(prefix)), table_(table) {
    if (!table_.is_table())
      fail_config(place() + importer_ + " expects a table of settings, found " + table_.description());
  }

  bool has(std::string_view key) const { return table_.find(key) != nullptr; }
  /// A whole number from `least` to kMost.
  std::int64_t count(std::string_view key, std::int64_t least = 1) const {
    const Value& value = required(key, "a whole number");
    if (value.type() != Value::Type::kInteger || value.integer() < least || value.integer() > kMost)
      refuse(key, "whole numbers from " + std::to_string(least) + " to " + std::to_string(kMost));
    return value.integer();
  }
  std::int64_t count_or(std::string_view key, std::int64_t fallback, std::int64_t least = 1) const {
    return has(key) ? count(key, least) : fallback;
  }
  double real_or(std::string_view key, double fallback) const {
    const Value* value = table_.find(key);
    if (value == nullptr) return fallback;
    if (value->type() != Value::Type::kInteger && value->type() != Value::Type::kReal) refuse(key, "numbers");
    return value->real();
  }
  bool truth_or(std::string_view key, bool fallback) const {
    const Value* value = table_.find(key);
    if (value == nullptr) return fallback;
    if (value->type() != Value::Type::kBoolean) refuse(key, "true and false");
    return value->boolean();
  }
  std::string text_or(std::string_view key, std::string_view fallback) const {
    const Value* value = table_.find(key);
    if (value == nullptr) return std::string(fallback);
    if (!value->is_text()) refuse(key, "texts");
    return value->text();
  }
  const Value& value(std::string_view key, const char* expected) const { return required(key, expected); }
  ImportedSettings inner(std::string_view key) const {
    return {importer_, required(key, "a table"), prefix_ + std::string(key) + "."};
  }

  /// Throws Error(kConfig); the key is there.
  [[noreturn]] void refuse(std::string_view key, std::string_view supported) const {
    const Value& value = *table_.find(key);
    fail_config(place() + "'" + prefix_ + std::string(key) + "' is " + value.inline_toml() + "; " +
                importer_ + " supports " + std::string(supported));
  }
  /// Refuses a number that is there and another than `value`.
  void require_real(std::string_view key, double value, std::string_view supported) const {
    if (real_or(key, value) != value) refuse(key, supported);
  }
  void require_absent(std::string_view key, std::string_view supported) const {
    if (has(key)) refuse(key, supported);
  }

 private:
  std::string place() const { return table_.origin.file.empty() ? "" : table_.origin.file + ": "; }
  const Value& required(std::string_view key, std::string_view expected) const {
    const Value* value = table_.find(key);
    if (value == nullptr)
      fail_config(place() + "'" + prefix_ + std::string(key) + "' is missing; " + importer_ + " expects " +
                  std::string(expected));
    return *value;
  }

  std::string importer_, prefix_;
  const Value& table_;
};

TENON_ABI_END
