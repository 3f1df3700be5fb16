-- ARGV: since
expire_reservations()
write_reservations()
write_marks()
return changes(tonumber(ARGV[1]), {})
