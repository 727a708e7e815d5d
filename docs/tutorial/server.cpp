// server.cpp - a server that grows: it answers requests, and remembers more of each than it will ever use.
//
// No network: a request is a number that the clients' threads make up.
#include <chrono>
#include <cstdio>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace {

struct Session {
  std::string user;
  std::vector<std::string> history;
};

class Sessions {
 public:
  std::string answer(unsigned user, const std::string &request) {
    std::lock_guard<std::mutex> guard(lock_);
    Session &session = sessions_[user];
    if (session.user.empty()) session.user = "user " + std::to_string(user);
    remember(session, request);
    return session.user + ": " + std::to_string(request.size());
  }

 private:
  // Nothing ever takes anything out.
  static void remember(Session &session, const std::string &request) { session.history.push_back(request); }

  std::mutex lock_;
  std::unordered_map<unsigned, Session> sessions_;
};

class Cache {
 public:
  void put(std::string page) {
    std::lock_guard<std::mutex> guard(lock_);
    pages_.push_back(std::move(page));
    if (pages_.size() > 4000) pages_.pop_front();
  }

 private:
  std::mutex lock_;
  std::deque<std::string> pages_;
};

Sessions sessions;
Cache cache;

void serve(unsigned client) {
  for (unsigned request = 0;; request++) {
    std::string text(200 + request * 37 % 800, 'x');
    cache.put(sessions.answer(request % 1000 * 4 + client, text) + std::string(8000, ' '));
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

}  // namespace

int main() {
  std::vector<std::thread> clients;
  for (unsigned client = 0; client < 4; client++) clients.emplace_back(serve, client);
  std::puts("ready");
  std::fflush(stdout);
  for (std::thread &each : clients) each.join();
}
