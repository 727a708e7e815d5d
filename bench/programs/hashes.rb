# Makes records with hashes, arrays and strings; groups, changes and drops them; sums up what is left.
#
#     hashes.rb RECORDS ROUNDS

Record = Struct.new(:id, :name, :fields)

def check(what, got, expected)
  abort "#{what}: #{got}, not #{expected}" unless got == expected
end

def record(id)
  tags = Array.new(5) { |n| "tag #{id % (n + 2)}" }
  Record.new(id, "record number #{id} with a name that does not fit inside an object", { id: id, tags: tags })
end

records, rounds = ARGV.map(&:to_i)
kept = {}
rounds.times do |round|
  records.times { |id| kept["key #{id}"] = record(id) if id % rounds == round || round.zero? }
  groups = kept.values.group_by { |item| item.id % 100 }
  check("round #{round}: grouped", groups.sum { |_, items| items.size }, records)
  text = groups.map { |key, items| "#{key}:" + items.map(&:name).join(",") }.join(";")
  check("round #{round}: names", text.scan(/record number/).size, records)
  check("round #{round}: tags", kept.sum { |_, item| item.fields[:tags].size }, records * 5)
end
kept.delete_if { |_, item| item.id.odd? }
check("left", kept.size, (records + 1) / 2)
