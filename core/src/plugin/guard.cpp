#include "plugin/guard.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <exception>
#include <iterator>
#include <optional>
#include <utility>

namespace tenon {
namespace {

// Initial-exec: a signal handler must not trigger the lazy allocation of a thread's storage.
__attribute__((tls_model("initial-exec"))) thread_local const GuardContext* current_call = nullptr;

thread_local std::optional<GuardContext> failed_call;

}  // namespace

std::string guard_place(const GuardContext& context) {
  std::string inner(context.plugin.empty() ? "" : context.component);
  const auto add = [&inner](std::string_view name, std::int64_t value) {
    if (value >= 0)
      fmt::format_to(std::back_inserter(inner), "{}{} {}", inner.empty() ? "" : ", ", name, value);
  };
  add("rank", context.rank);
  add("step", context.step);
  const std::string who =
      context.plugin.empty() ? std::string(context.component) : fmt::format("plugin {}", context.plugin);
  return inner.empty() ? who : fmt::format("{} ({})", who, inner);
}

const GuardContext* current_plugin_call() noexcept {
  return current_call;
}

const GuardContext* exchange_plugin_call(const GuardContext* context) noexcept {
  return std::exchange(current_call, context);
}

void note_failed_call(const GuardContext& context) noexcept {
  if (!failed_call) failed_call = context;
}

void rethrow_noted_call() {
  if (const auto call = std::exchange(failed_call, std::nullopt)) rethrow_named(*call);
  throw;
}

void rethrow_named(const GuardContext& context) {
  const std::string place = guard_place(context);
  try {
    throw;
  } catch (const CancelledError&) {
    throw;
  } catch (const DeadlineError& error) {
    throw DeadlineError(fmt::format("{}: {}", place, error.what()));
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", place, error.what()));
  } catch (const std::exception& error) {
    throw Error(ErrorKind::kPlugin, fmt::format("{}: {}", place, error.what()));
  } catch (...) {
    throw Error(ErrorKind::kPlugin, fmt::format("{}: threw an object that is not a std::exception", place));
  }
}

}  // namespace tenon
