//! `ResourceProfiles` and what is in it.

use profbridge_model::{
    LinkId, Profile, Resource, ResourceProfiles, Sample, SampleIds, Scope, ScopeProfiles, StackId, StringId, ValueType,
};

use super::put::{bytes, bytes_size, fixed64, fixed64_size, head, int, int_size, message_size};
use super::{Encoder, payload_may_leave};

impl<'a> Encoder<'a> {
    fn text(&self, id: Option<StringId>) -> &'a [u8] {
        self.dictionary.string_bytes(id)
    }

    /// The size of a `ResourceProfiles`' contents. Notes the sizes of what is in it, each before its contents', in the
    /// order in which they are written.
    pub(super) fn resource_profiles_size(&mut self, resource: &ResourceProfiles) -> usize {
        let slot = self.reserve_size();
        let ResourceProfiles { resource, scopes, schema_url } = resource;
        let mut size = bytes_size(self.resource_size(resource)) + bytes_size(self.text(*schema_url).len());
        for scope in scopes {
            size += message_size(self.scope_profiles_size(scope));
        }
        self.sizes[slot] = size;
        size
    }

    fn scope_profiles_size(&mut self, scope: &ScopeProfiles) -> usize {
        let slot = self.reserve_size();
        let ScopeProfiles { scope, profiles, schema_url } = scope;
        let mut size = bytes_size(self.scope_size(scope)) + bytes_size(self.text(*schema_url).len());
        for profile in profiles {
            size += message_size(self.profile_size(profile));
        }
        self.sizes[slot] = size;
        size
    }

    fn reserve_size(&mut self) -> usize {
        self.sizes.push(0);
        self.sizes.len() - 1
    }

    fn next_size(&mut self) -> usize {
        self.next += 1;
        self.sizes[self.next - 1]
    }

    fn resource_size(&self, resource: &Resource) -> usize {
        let Resource { attributes, dropped_attributes_count, entity_refs } = resource;
        let attributes = attributes.iter().map(|attribute| message_size(self.key_value_size(attribute)));
        let entities = entity_refs.iter().map(|entity| message_size(entity.len as usize));
        attributes.chain(entities).sum::<usize>() + int_size((*dropped_attributes_count).into())
    }

    fn scope_size(&self, scope: &Scope) -> usize {
        let Scope { name, version, attributes, dropped_attributes_count } = scope;
        bytes_size(self.text(*name).len())
            + bytes_size(self.text(*version).len())
            + attributes.iter().map(|attribute| message_size(self.key_value_size(attribute))).sum::<usize>()
            + int_size((*dropped_attributes_count).into())
    }

    fn profile_size(&mut self, profile: &Profile) -> usize {
        let Profile {
            sample_type,
            samples: _,
            time_unix_nano,
            duration_nano,
            period_type,
            period,
            profile_id,
            dropped_attributes_count,
            original_payload_format: _,
            original_payload: _,
            attributes,
        } = profile;
        let samples: usize = self.profiles.samples(profile).map(|sample| message_size(self.sample_size(&sample))).sum();
        let payload = self.original_payload(profile);
        let size = samples
            + bytes_size(value_type_size(*sample_type))
            + fixed64_size(*time_unix_nano)
            + int_size(*duration_nano)
            + bytes_size(value_type_size(*period_type))
            + int_size(*period as u64)
            + bytes_size(profile_id.map_or(0, |id| id.len()))
            + int_size((*dropped_attributes_count).into())
            + payload.map_or(0, |(format, payload)| bytes_size(format.len()) + bytes_size(payload.len()))
            + bytes_size(self.sets.get(*attributes).len());
        self.sizes.push(size);
        size
    }

    fn sample_size(&self, sample: &Sample<'_>) -> usize {
        let SampleIds { stack, attributes, link } = sample.ids();
        let no_link = if link.is_none() && self.reads_as_1_9(sample) { NO_LINK.len() } else { 0 };
        int_size(StackId::wire(stack).into())
            + bytes_size(self.sets.get(attributes).len())
            + int_size(LinkId::wire(link).into())
            + no_link
            + bytes_size(sample.values_bytes().len())
            + bytes_size(sample.timestamps_bytes().len())
    }

    /// Whether the attributes of a sample could be values in the layout of 1.9: there is one for each time, and neither
    /// values nor a link.
    #[inline]
    fn reads_as_1_9(&self, sample: &Sample<'_>) -> bool {
        sample.values_bytes().is_empty()
            && sample.attributes.is_some()
            && self.dictionary.attribute_set(sample.attributes).len() * 8 == sample.timestamps_bytes().len()
    }

    /// The original payload and its format, which go together or not at all.
    fn original_payload(&self, profile: &Profile) -> Option<(&'a [u8], &'a [u8])> {
        if !self.options.original_payload || !payload_may_leave(self.dictionary, profile) {
            return None;
        }
        Some((self.text(profile.original_payload_format), self.dictionary.bytes(profile.original_payload)))
    }

    /// Writes a `ResourceProfiles` as a field.
    pub(super) fn resource_profiles(&mut self, out: &mut Vec<u8>, resource: &ResourceProfiles) {
        let size = self.next_size();
        head(out, 0x0a, size);
        let own = self.resource_size(&resource.resource);
        if own > 0 {
            head(out, 0x0a, own);
            for attribute in &resource.resource.attributes {
                self.key_value(out, 0x0a, attribute);
            }
            int(out, 0x10, resource.resource.dropped_attributes_count.into());
            for &entity in &resource.resource.entity_refs {
                head(out, 0x1a, entity.len as usize);
                out.extend_from_slice(self.dictionary.bytes(entity));
            }
        }
        for scope in &resource.scopes {
            self.scope_profiles(out, scope);
        }
        bytes(out, 0x1a, self.text(resource.schema_url));
    }

    fn scope_profiles(&mut self, out: &mut Vec<u8>, scope: &ScopeProfiles) {
        let size = self.next_size();
        head(out, 0x12, size);
        let own = self.scope_size(&scope.scope);
        if own > 0 {
            head(out, 0x0a, own);
            bytes(out, 0x0a, self.text(scope.scope.name));
            bytes(out, 0x12, self.text(scope.scope.version));
            for attribute in &scope.scope.attributes {
                self.key_value(out, 0x1a, attribute);
            }
            int(out, 0x20, scope.scope.dropped_attributes_count.into());
        }
        for profile in &scope.profiles {
            self.profile(out, profile);
        }
        bytes(out, 0x1a, self.text(scope.schema_url));
    }

    fn profile(&mut self, out: &mut Vec<u8>, profile: &Profile) {
        let size = self.next_size();
        head(out, 0x12, size);
        self.value_type(out, 0x0a, profile.sample_type);
        for sample in self.profiles.samples(profile) {
            self.sample(out, &sample);
        }
        fixed64(out, 0x19, profile.time_unix_nano);
        int(out, 0x20, profile.duration_nano);
        self.value_type(out, 0x2a, profile.period_type);
        let payload = self.original_payload(profile);
        int(out, 0x30, profile.period as u64);
        bytes(out, 0x3a, profile.profile_id.as_ref().map_or(&[], |id| id.as_slice()));
        int(out, 0x40, profile.dropped_attributes_count.into());
        if let Some((format, payload)) = payload {
            bytes(out, 0x4a, format);
            bytes(out, 0x52, payload);
        }
        bytes(out, 0x5a, self.sets.get(profile.attributes));
    }

    fn value_type(&self, out: &mut Vec<u8>, key: u8, value_type: ValueType) {
        let size = value_type_size(value_type);
        if size > 0 {
            head(out, key, size);
            int(out, 0x08, StringId::wire(value_type.kind).into());
            int(out, 0x10, StringId::wire(value_type.unit).into());
        }
    }

    #[inline]
    fn sample(&self, out: &mut Vec<u8>, sample: &Sample<'_>) {
        let size = self.sample_size(sample);
        head(out, 0x12, size);
        int(out, 0x08, StackId::wire(sample.stack).into());
        bytes(out, 0x12, self.sets.get(sample.attributes));
        match sample.link {
            None if self.reads_as_1_9(sample) => out.extend_from_slice(NO_LINK),
            link => int(out, 0x18, LinkId::wire(link).into()),
        }
        bytes(out, 0x22, sample.values_bytes());
        bytes(out, 0x2a, sample.timestamps_bytes());
    }
}

/// The link 0, which stands for none and mostly is left out.
const NO_LINK: &[u8] = &[0x18, 0];

fn value_type_size(ValueType { kind, unit }: ValueType) -> usize {
    int_size(StringId::wire(kind).into()) + int_size(StringId::wire(unit).into())
}
