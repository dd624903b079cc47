//! Encodes `ResourceProfiles` and its content.

use profbridge_model::{
    LinkId, Profile, Resource, ResourceProfiles, Sample, SampleIds, Scope, ScopeProfiles, StackId, StringId, ValueType,
};

use super::put::{FieldSink, bytes, encoded, fixed64, int, message, some_message};
use super::{RequestEncoder, payload_may_leave};

impl<'a> RequestEncoder<'a> {
    fn text(&self, id: Option<StringId>) -> &'a [u8] {
        self.dictionary.string_bytes(id)
    }

    /// Whether a sample's attributes could be mistaken for values in the layout of 1.9: there is one for each time, and
    /// neither values nor a link.
    #[inline]
    fn reads_as_1_9(&self, sample: &Sample<'_>) -> bool {
        sample.values_bytes().is_empty()
            && sample.attributes.is_some()
            && self.dictionary.attribute_set(sample.attributes).len() * 8 == sample.timestamps_bytes().len()
    }

    /// The original payload and its format, which are written together or not at all.
    fn original_payload(&self, profile: &Profile) -> Option<(&'a [u8], &'a [u8])> {
        if !self.options.original_payload || !payload_may_leave(self.dictionary, profile) {
            return None;
        }
        Some((self.text(profile.original_payload_format), self.dictionary.bytes(profile.original_payload)))
    }

    /// Writes a `ResourceProfiles` as a field.
    pub(super) fn resource_profiles(&mut self, out: &mut impl FieldSink, resource: &ResourceProfiles) {
        let open = out.open(0x0a, &mut self.sizes);
        let ResourceProfiles { resource, scopes, schema_url } = resource;
        some_message(out, 0x0a, |size| self.resource(size, resource), |out| self.resource(out, resource));
        for scope in scopes {
            self.scope_profiles(out, scope);
        }
        bytes(out, 0x1a, self.text(*schema_url));
        out.close(open, &mut self.sizes);
    }

    fn resource(&self, out: &mut impl FieldSink, resource: &Resource) {
        let Resource { attributes, dropped_attributes_count, entity_refs } = resource;
        self.key_values(out, 0x0a, attributes);
        int(out, 0x10, (*dropped_attributes_count).into());
        for &entity in entity_refs {
            encoded(out, 0x1a, self.dictionary.bytes(entity));
        }
    }

    fn scope_profiles(&mut self, out: &mut impl FieldSink, scope: &ScopeProfiles) {
        let open = out.open(0x12, &mut self.sizes);
        let ScopeProfiles { scope, profiles, schema_url } = scope;
        some_message(out, 0x0a, |size| self.scope(size, scope), |out| self.scope(out, scope));
        for profile in profiles {
            self.profile(out, profile);
        }
        bytes(out, 0x1a, self.text(*schema_url));
        out.close(open, &mut self.sizes);
    }

    fn scope(&self, out: &mut impl FieldSink, scope: &Scope) {
        let Scope { name, version, attributes, dropped_attributes_count } = scope;
        bytes(out, 0x0a, self.text(*name));
        bytes(out, 0x12, self.text(*version));
        self.key_values(out, 0x1a, attributes);
        int(out, 0x20, (*dropped_attributes_count).into());
    }

    fn profile(&mut self, out: &mut impl FieldSink, profile: &Profile) {
        let open = out.open(0x12, &mut self.sizes);
        let &Profile {
            sample_type,
            samples: _,
            time_unix_nano,
            duration_nano,
            period_type,
            period,
            ref profile_id,
            dropped_attributes_count,
            original_payload_format: _,
            original_payload: _,
            attributes,
        } = profile;
        some_message(out, 0x0a, |size| value_type(size, sample_type), |out| value_type(out, sample_type));
        for sample in self.profiles.samples(profile) {
            message(out, 0x12, |size| self.sample(size, &sample), |out| self.sample(out, &sample));
        }
        fixed64(out, 0x19, time_unix_nano);
        int(out, 0x20, duration_nano);
        some_message(out, 0x2a, |size| value_type(size, period_type), |out| value_type(out, period_type));
        int(out, 0x30, period as u64);
        bytes(out, 0x3a, profile_id.as_ref().map_or(&[], |id| id.as_slice()));
        int(out, 0x40, dropped_attributes_count.into());
        if let Some((format, payload)) = self.original_payload(profile) {
            bytes(out, 0x4a, format);
            bytes(out, 0x52, payload);
        }
        bytes(out, 0x5a, self.sets.get(attributes));
        out.close(open, &mut self.sizes);
    }

    #[inline]
    fn sample(&self, out: &mut impl FieldSink, sample: &Sample<'_>) {
        let SampleIds { stack, attributes, link } = sample.ids;
        int(out, 0x08, StackId::wire(stack).into());
        bytes(out, 0x12, self.sets.get(attributes));
        match link {
            None if self.reads_as_1_9(sample) => out.raw(NO_LINK),
            link => int(out, 0x18, LinkId::wire(link).into()),
        }
        bytes(out, 0x22, sample.values_bytes());
        bytes(out, 0x2a, sample.timestamps_bytes());
    }
}

/// An explicit link 0, which means none and is usually left out.
const NO_LINK: &[u8] = &[0x18, 0];

fn value_type(out: &mut impl FieldSink, ValueType { kind, unit }: ValueType) {
    int(out, 0x08, StringId::wire(kind).into());
    int(out, 0x10, StringId::wire(unit).into());
}
