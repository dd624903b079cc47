# Waits in a stack of known functions: methods, blocks, call-backs through C, a method defined by a block, evaluated
# text and a fiber. First it prints the stack as Ruby itself reports it (path, line, label of each frame).
module Outer
  class Späte
    def methode(depth)
      return methode(depth - 1) if depth > 0
      [1].each { |one| run(one) }
    end

    def run(one)
      [one].sort_by do |other|
        Späte.make(other)
      end
    end

    def self.make(other)
      begin
        raise ArgumentError, "of a kind"
      rescue ArgumentError
        new.defined(other)
      end
    end

    define_method(:defined) do |other|
      "text".gsub(/x/) { |found| wait_here(found) }
    end

    def wait_here(found)
      eval("1 + standing", binding, "(evaluated)", 77)
    end

    def standing
      for at in caller_locations(0)
        puts "#{at.absolute_path || at.path}\t#{at.lineno}\t#{at.label}"
      end
      puts "end"
      $stdout.flush
      $stdin.read
      1
    end
  end
end

if ARGV[0] == "thread"
  Thread.new { Outer::Späte.new.methode(2) }.join
elsif ARGV[0] == "fiber"
  Fiber.new { Outer::Späte.new.methode(2) }.resume
else
  Outer::Späte.new.methode(2)
end
