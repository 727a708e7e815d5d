# Holds 64 MiB: "heap", objects in Ruby's heap pages, or "strings", long ones, whose bytes lie outside of them.
$kept =
  if ARGV[0] == "heap"
    Array.new(64 * 1024 * 1024 / 40) { Object.new }
  else
    Array.new(64 * 1024) { "x" * 1000 }
  end
puts "ready"
$stdout.flush
$stdin.gets
