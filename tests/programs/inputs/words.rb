# Strings, hashes, big integers, garbage collection, threads, ractors, fork: prints only what is the same in every run.
require "digest"
require "json"
require "set"
require "zlib"

random = Random.new(42)
words = Array.new(200_000) { "w#{random.rand(9000)}" + "x" * random.rand(60) }
count = words.tally
puts count.sort_by { |word, n| [-n, word] }.first(15).map { |pair| pair.join(" ") }
puts Digest::SHA256.hexdigest(words.sort.join("\n"))

tree = Hash.new { |hash, key| hash[key] = Hash.new { |inner, name| inner[name] = [] } }
120_000.times { |n| tree[n % 89][n % 53] << { id: n, name: "n" * (n % 37) } }
tree.delete_if { |key, _| key.odd? }
GC.start
puts tree.sum { |_, row| row.sum { |_, list| list.sum { |item| item[:name].size } } }

text = JSON.generate(tree)
again = JSON.parse(text)
packed = Zlib::Deflate.deflate(text)
puts text.size, again.size, Zlib::Inflate.inflate(packed) == text
puts text.gsub(/"id":(\d+)/) { "\"id\":#{$1.to_i * 2}" }.hash == 0 ? "zero" : "hash"
puts Digest::SHA256.hexdigest(text.gsub(/"id":(\d+)/) { "\"id\":#{$1.to_i * 2}" })

puts (1..1500).inject(:*).to_s.size, (3**20_000 % 1_000_003)
puts Set.new((1..50_000).map { |n| n * n % 10_007 }).size

threads = Array.new(6) { |n| Thread.new { Array.new(20_000) { |i| (i * n).to_s * 3 }.sum(&:size) } }
puts threads.map(&:value).join(" ")

$VERBOSE = nil
ractors = Array.new(2) { |n| Ractor.new(n) { |own| (1..30_000).map { |i| "r#{i * own}" }.uniq.size } }
puts ractors.map(&:take).join(" ")

3.times do |n|
  reader, writer = IO.pipe
  pid = fork { reader.close; writer.write(words.first(50_000 * (n + 1)).map(&:reverse).join.size.to_s); writer.close }
  writer.close
  puts reader.read
  Process.wait(pid)
  puts $?.exitstatus
end
GC.compact if GC.respond_to?(:compact)
puts words.sum(&:size)
